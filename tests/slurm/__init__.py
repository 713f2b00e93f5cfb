"""Rendered batch scripts run by real Slurm."""
