"""Where the ranks of an attempt stand, asked by the best way that each of them offers."""
