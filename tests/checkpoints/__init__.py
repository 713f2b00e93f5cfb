"""Writers of checkpoints, killed at every boundary of a file and in the middle of each."""
