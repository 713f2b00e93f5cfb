"""What jobs write: streams read from byte offsets, and the metrics found in them."""
