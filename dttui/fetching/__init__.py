"""Files of a job that come from its hosts: listed, named safely, brought in parts, and verified. Knows no terminal."""
