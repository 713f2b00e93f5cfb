"""What is wrong with the login node, hosts and what is between them, each with the command that mends it."""
