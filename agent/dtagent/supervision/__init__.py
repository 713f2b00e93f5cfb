"""The small detached process that owns one attempt's processes on this host, its journal and its caps."""
