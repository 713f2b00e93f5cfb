"""What the host is, and what the interpreters on it have."""
