"""What the bridge says first. Apart from the rest of the protocol, whose imports a person would wait for."""

MAGIC = b"dtagent-bridge 1\n"
"""First line the bridge writes; whatever a login shell prints before it is discarded."""
