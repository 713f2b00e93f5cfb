"""What frameworks are made of: their options and files, the launchers, the environment of a rank. All pure."""
