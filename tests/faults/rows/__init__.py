"""The rows of the table of faults, a module a part of a job's way."""
