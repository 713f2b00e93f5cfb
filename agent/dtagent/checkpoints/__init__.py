"""Checkpoints that scripts write, by the forms that frameworks give them: which are whole, and which is the newest."""
