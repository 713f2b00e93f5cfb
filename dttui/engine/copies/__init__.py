"""What comes from hosts, kept in the job's directory within bounds: logs, metrics, samples."""
