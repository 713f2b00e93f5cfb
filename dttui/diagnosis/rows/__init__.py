"""The rows of the table of causes, by subject."""
