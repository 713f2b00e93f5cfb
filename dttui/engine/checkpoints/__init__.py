"""Checkpoints of attempts: what one goes on from, how many are kept, and their copies on the disks of other nodes."""
