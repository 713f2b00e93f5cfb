"""The server on the Unix socket and the bridge to it: wiring of the parts, and what keeps it alive."""
