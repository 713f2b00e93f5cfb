"""Hosts reached over SSH: the only importer of paramiko. `transport` is what `routes` takes; each step has a module."""
