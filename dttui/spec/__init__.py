"""job.yaml: models, loader, units. Pure but for reading the file."""
