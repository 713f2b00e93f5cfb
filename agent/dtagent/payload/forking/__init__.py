"""What a process that keeps torch imported is made of, so that a job can be forked from it. Standard library only."""
