"""Ways to a host: SSH, local, and a fake for tests, behind one Protocol."""
