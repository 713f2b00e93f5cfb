"""One module per framework: files and commands per node. Pure."""
