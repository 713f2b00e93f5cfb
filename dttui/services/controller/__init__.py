"""The process that owns a running job on the login node, and how other processes talk to it."""
