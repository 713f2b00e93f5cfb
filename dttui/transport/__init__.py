"""Ways to a host, behind one Protocol (`base`): SSH, a command of the person's, this machine; `routes` picks."""
