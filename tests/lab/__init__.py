"""The project's own test cluster: several isolated hosts with real OpenSSH servers on one machine."""
