"""How long a job takes to start."""

from __future__ import annotations

ONE_NODE_S = 10.0
"""What the seed documents promise for one environment: training begins within 10 seconds."""
RENDEZVOUS_S = 0.7
"""What joining costs: two nodes × one rank on gloo reached their first all-reduce 2.20 s after exec by static
rendezvous, a plain process 1.47 s (torch 2.13 on CPU, measured for this project)."""
LOGIN_S = 0.1
"""A connection to one more host: 105 ms measured for one that is not warm. They overlap, so it is an upper bound."""


def start_estimate_s(node_count: int) -> float:
    """Return the seconds from launch to the first step, roughly: one node's, and what each further one adds at most."""
    further = max(node_count - 1, 0)
    return round(ONE_NODE_S + (RENDEZVOUS_S if further else 0.0) + LOGIN_S * further, 1)
