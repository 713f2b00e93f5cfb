"""A job that is being composed: what it would do, cost and lack, before anything is launched."""
