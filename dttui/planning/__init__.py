"""From a job and environments to a Plan. Pure."""
