"""dtagent: the per-user daemon on a GPU host. Knows nothing of dttui but the protocol they share."""

__version__ = "0.1.0"
