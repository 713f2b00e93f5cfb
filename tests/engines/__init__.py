"""Jobs in containers of real docker, podman and apptainer, by root and by an ordinary user."""
