"""The hosts of an inventory: how they are now, what is known of them, and the agent on them."""
