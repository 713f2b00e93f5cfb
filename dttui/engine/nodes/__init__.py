"""One node of an attempt, seen from the login node: its start, its conversation, its end."""
