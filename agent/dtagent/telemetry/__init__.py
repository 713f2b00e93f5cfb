"""What the host and its GPUs do now: probes, samples, rates and the ring that holds them."""
