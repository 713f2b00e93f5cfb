"""Environments and datasets, and where they are read from."""
