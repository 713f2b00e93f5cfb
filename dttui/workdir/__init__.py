"""The working directory: which of its files go to hosts, and how they are sent."""
