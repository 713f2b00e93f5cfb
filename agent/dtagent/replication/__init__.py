"""Copies of checkpoints on other hosts' disks: sent over the training network, host to host, and kept by number."""
