"""Copies of checkpoints on the disks of other nodes: made while ranks train, and handed on to who goes on from them."""
