"""Submitting a job: its directory on the login node, and the files that go to its hosts."""
