"""Scripts that run inside the user's own interpreter: standard library and torch only; copied to each attempt."""
