"""A job written to a directory that runs without dttui."""
