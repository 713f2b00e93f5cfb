"""Jobs in containers of a real podman."""
