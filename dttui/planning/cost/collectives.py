"""What collectives cost: the α–β model of ring, tree and butterfly, and how a group lies over nodes."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2
from typing import Literal

from dttui.planning.cost.hardware import Hardware, Link

Algorithm = Literal["ring", "tree", "butterfly"]

SMALL_CLUSTER_NODES = 8
"""Up to so many nodes seed 000 §5.3 takes a ring, beyond a tree."""
RING_BUFFER_BYTES = 1 << 20
TREE_BUFFER_BYTES = 2 << 20


def all_reduce_s(size: float, ranks: int, link: Link, algorithm: Algorithm = "ring") -> float:
    """Return the seconds an all-reduce takes.

    Ring: 2(n−1)α + 2(n−1)/n·S/B. Tree: 2⌈log₂n⌉α + 2S/B. Butterfly (recursive halving and doubling): 2⌈log₂n⌉α +
    2(n−1)/n·S/B (Thakur et al. 2005).

    Args:
        size: bytes each rank holds.
        ranks: size of the group.
        link: α is its latency, 1/β its bandwidth.
        algorithm: how.
    """
    if ranks <= 1:
        return 0.0
    share = (ranks - 1) / ranks
    rounds = 2 * ceil(log2(ranks))
    if algorithm == "ring":
        return 2 * (ranks - 1) * link.latency_s + 2 * share * size / link.bandwidth
    if algorithm == "tree":
        return rounds * link.latency_s + 2 * size / link.bandwidth
    return rounds * link.latency_s + 2 * share * size / link.bandwidth


def all_gather_s(size: float, ranks: int, link: Link) -> float:
    """Return the seconds an all-gather, or a reduce-scatter, of `size` bytes in all takes as a ring."""
    if ranks <= 1:
        return 0.0
    return (ranks - 1) * (link.latency_s + size / ranks / link.bandwidth)


def broadcast_s(size: float, ranks: int, link: Link, algorithm: Literal["tree", "linear"] = "tree") -> float:
    """Return the seconds a broadcast of `size` bytes takes."""
    if ranks <= 1:
        return 0.0
    rounds = ceil(log2(ranks)) if algorithm == "tree" else ranks - 1
    return rounds * (link.latency_s + size / link.bandwidth)


def bus_bandwidth_factor(collective: str, ranks: int) -> float:
    """Return bus bandwidth ÷ algorithm bandwidth, as nccl-tests has it."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in ("all_gather", "reduce_scatter"):
        return (ranks - 1) / ranks
    return 1.0


def crossing_bytes(ranks: int, link: Link) -> float:
    """Return the size at which ring and tree take equally long: below it the tree is faster.

    2(n−1)α + 2(n−1)/n·S/B = 2⌈log₂n⌉α + 2S/B, so S = n·(n−1−⌈log₂n⌉)·α·B.
    """
    return ranks * (ranks - 1 - ceil(log2(ranks))) * link.latency_s * link.bandwidth if ranks > 1 else 0.0


@dataclass(frozen=True, slots=True)
class AlgorithmChoice:
    """An algorithm for all-reduce, and why."""

    algorithm: Algorithm
    buffer_bytes: int
    rule: Algorithm
    """What the number of nodes alone would choose (seed 000 §5.3)."""
    crossing_bytes: float
    """Below this size a tree is faster."""


def choose_all_reduce(nodes: int, ranks: int, size: float, link: Link) -> AlgorithmChoice:
    """Return seed 000's choice by the number of nodes, or what α and β say where they differ from it.

    Args:
        nodes: nodes of the job.
        ranks: ranks that reduce with each other.
        size: bytes of one message.
        link: the slowest link of the group.
    """
    rule: Algorithm = "ring" if nodes <= SMALL_CLUSTER_NODES else "tree"
    crossing = crossing_bytes(ranks, link)
    chosen: Algorithm = rule
    if ranks > 2:
        chosen = "tree" if size < crossing else "ring"
    return AlgorithmChoice(chosen, RING_BUFFER_BYTES if chosen == "ring" else TREE_BUFFER_BYTES, rule, crossing)


def group_link(hardware: Hardware, ranks: int, stride: int) -> Link:
    """Return the link that a group of ranks has, `stride` ranks apart, where ranks fill one node after the other.

    A group that leaves its node crosses the network once a node, by the cards of all its members there; each step of
    a ring takes as long as its slowest hop.
    """
    efficiency = hardware.efficiency
    per_node = hardware.gpus_per_node
    if (ranks - 1) * stride < per_node:
        return Link(hardware.intra.bandwidth * efficiency.intra_node, hardware.intra.latency_s)
    members = max(1, min(ranks, per_node // stride))
    bandwidth = min(
        hardware.inter.bandwidth * efficiency.inter_node * members,
        hardware.intra.bandwidth * efficiency.intra_node if members > 1 else float("inf"),
    )
    return Link(bandwidth, hardware.inter.latency_s)
