"""What a preflight asks of a host beyond its facts."""
