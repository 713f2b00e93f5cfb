"""The attempts on this host: prepared, filled, started, stopped, adopted again, and removed in the end."""
