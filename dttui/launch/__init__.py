"""From a job file to a controller of its own, and talking to that."""
