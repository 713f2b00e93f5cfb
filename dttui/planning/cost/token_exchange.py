"""What ranks send each other within a layer: keys and values of a shared sequence, and tokens to their experts."""

from __future__ import annotations

from dttui.planning.cost.collectives import group_link
from dttui.planning.cost.hardware import Hardware
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.shape import ModelShape

EXPERT_OVERLAP = 0.1
"""Share of what goes to experts and back that hides behind computing. Fitted to bench/measured_runs/fit.yaml."""


def ring_attention_s(shape: ModelShape, layout: Layout, hardware: Hardware) -> tuple[float, float]:
    """Return the seconds that keys and values of one layer are under way around the ring, forward and backward.

    c − 1 rounds, each with a rank's share of keys and values (Liu et al. 2023); backwards their gradients, too. What of
    that attention's own computing covers is not waited for.
    """
    c = layout.context
    if c == 1:
        return 0.0, 0.0
    link = group_link(hardware, c, layout.tensor)
    tokens = shape.seq_length * layout.micro_batch / c
    size = 2 * tokens * shape.kv_size / layout.tensor * layout.bytes_per_parameter
    forward = (c - 1) * (link.latency_s + size / link.bandwidth)
    return forward, 2 * forward


def _reached(groups: int, choices: int) -> float:
    """Return how many of some equal groups of experts a token's choices fall into, on average: n·(1 − (1 − 1/n)^k)."""
    return groups * (1 - (1 - 1 / groups) ** choices)


def expert_exchange_s(shape: ModelShape, layout: Layout, hardware: Hardware) -> float:
    """Return the seconds that one layer's tokens are under way to experts and back, forward and backward.

    Four times: there and back, and the gradients of both (Lepikhin et al. 2020). A token crosses the network once to
    each other node, and a node's link once to each other rank, however many of its experts are there, as DeepEP sends
    it; both go on at once. Layers without experts have none of it.
    """
    n, k = layout.expert, shape.experts_per_token
    if shape.experts is None or n == 1:
        return 0.0
    reached = hardware.efficiency
    split = max(layout.tensor // layout.tensor_of_experts, 1) if layout.sequence_parallel else 1
    tokens = shape.seq_length * layout.micro_batch / layout.context / split
    size = tokens * shape.hidden_size * layout.bytes_per_parameter
    inside = max(1, min(n, hardware.linked // layout.tensor_of_experts))
    near = size * _reached(n, k) * (inside - 1) / n / (hardware.intra.bandwidth * reached.intra_node)
    once = hardware.intra.latency_s * (inside - 1) + near
    if inside < n:
        nodes = n // inside
        far = size * _reached(nodes, k) * (nodes - 1) / nodes / (hardware.inter.bandwidth * reached.inter_node)
        once = hardware.inter.latency_s * (nodes - 1) + max(near, far)
    return 4 * shape.expert_share * once * (1 - EXPERT_OVERLAP)
