"""The write side of a job: its controller, and each attempt from the start to the outcome."""
