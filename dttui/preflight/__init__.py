"""What is looked at before a job starts: the hosts, what is on them, and the network between them."""
