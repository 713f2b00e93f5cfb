"""What the agent asks of the operating system: processes, users, mounts, cgroups, systemd. It knows no jobs."""
