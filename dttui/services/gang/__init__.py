"""One attempt of a job on all its nodes: started together, watched, taken over, and how it ended."""
