"""What collectives cost: the α–β model of ring, tree and butterfly, and how a group lies over nodes."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf, log2, sqrt
from typing import Literal

from pydantic import BaseModel, ConfigDict

from dttui.i18n import _, joined
from dttui.planning.cost.hardware import Hardware, Interconnect

Algorithm = Literal["ring", "tree", "butterfly"]
BroadcastAlgorithm = Literal["tree", "linear"]

SMALL_CLUSTER_NODES = 8
"""Up to so many nodes seed 000 §5.3 takes a ring, beyond a tree."""
RING_BUFFER_BYTES = 1 << 20
TREE_BUFFER_BYTES = 2 << 20
LEAST_BUCKET_BYTES, MOST_BUCKET_BYTES = 25 << 20, 1 << 30


def all_reduce_s(size: float, ranks: int, link: Interconnect, algorithm: Algorithm = "ring") -> float:
    """Return the seconds an all-reduce takes.

    Ring: 2(n−1)α + 2(n−1)/n·S/B. Tree: 2⌈log₂n⌉α + 2S/B, as NCCL's, whose rounds overlap. Butterfly (recursive halving
    and doubling): 2log₂n·α + 2(n−1)/n·S/B; where n is no power of two, that of the largest p below it, and two rounds
    with all of the vector: 2α + 2S/B more (Thakur et al. 2005).

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
    power = 1 << (ranks.bit_length() - 1)
    volume = 2 * (power - 1) / power + (0 if power == ranks else 2)
    return rounds * link.latency_s + volume * size / link.bandwidth


def all_gather_s(size: float, ranks: int, link: Interconnect) -> float:
    """Return the seconds an all-gather, or a reduce-scatter, of `size` bytes in all takes as a ring."""
    if ranks <= 1:
        return 0.0
    return (ranks - 1) * (link.latency_s + size / ranks / link.bandwidth)


def broadcast_s(size: float, ranks: int, link: Interconnect, algorithm: BroadcastAlgorithm = "tree") -> float:
    """Return the seconds a broadcast of `size` bytes takes."""
    if ranks <= 1:
        return 0.0
    rounds = ceil(log2(ranks)) if algorithm == "tree" else ranks - 1
    return rounds * (link.latency_s + size / link.bandwidth)


def stepwise_all_reduce_s(size: float, ranks: int, link: Interconnect) -> float:
    """Return the seconds of an all-reduce by a tree whose rounds wait for each other, as `dttui_collectives`' do.

    2⌈log₂n⌉(α + S/B): it reduces to one rank, and broadcasts from there.
    """
    return 2 * broadcast_s(size, ranks, link)


def gather_s(size: float, ranks: int, link: Interconnect, algorithm: BroadcastAlgorithm = "tree") -> float:
    """Return the seconds a gather, or a scatter, of `size` bytes in all takes.

    Tree: ⌈log₂n⌉α + (n−1)/n·S/B. Linear: (n−1)(α + S/(n·B)).
    """
    if ranks <= 1:
        return 0.0
    rounds = ceil(log2(ranks)) if algorithm == "tree" else ranks - 1
    return rounds * link.latency_s + (ranks - 1) / ranks * size / link.bandwidth


def hosts_all_reduce_s(size: float, members: int, hosts: int, link: Interconnect, *, is_even: bool = True) -> float:
    """Return the seconds of an all-reduce inside hosts, then between them, then inside, over one kind of link.

    Hosts of m ranks each: 2(m−1)(α + S/(m·B)) + 2(h−1)(α + S/(h·m·B)). Where some have fewer, one rank of each speaks
    for it: 2⌈log₂m⌉(α + S/B) + 2(h−1)(α + S/(h·B)).

    Args:
        size: bytes each rank holds.
        members: m, of the largest host.
        hosts: h.
        link: between all ranks.
        is_even: whether all hosts have m.
    """
    if is_even:
        return 2 * all_gather_s(size, members, link) + all_reduce_s(size / members, hosts, link)
    return stepwise_all_reduce_s(size, members, link) + all_reduce_s(size, hosts, link)


def bus_bandwidth_factor(collective: str, ranks: int) -> float:
    """Return bus bandwidth ÷ algorithm bandwidth, as nccl-tests has it."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in ("all_gather", "reduce_scatter", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0


def crossing_bytes(ranks: int, link: Interconnect) -> float:
    """Return the size at which ring and tree take equally long: below it the tree is faster.

    2(n−1)α + 2(n−1)/n·S/B = 2⌈log₂n⌉α + 2S/B, so S = n·(n−1−⌈log₂n⌉)·α·B.
    """
    return ranks * (ranks - 1 - ceil(log2(ranks))) * link.latency_s * link.bandwidth if ranks > 1 else 0.0


def gradient_bucket_bytes(latency_s: float, bandwidth: float, size: float | None, backward_s: float | None) -> int:
    """Return how many bytes of gradients had best be reduced at once, while a backward pass still makes others.

    Reducing b bytes takes a + c·b. A pass of T seconds makes S bytes evenly, in k buckets: the last is reduced after
    max(T + a + c·S/k, T/k + k·a + c·S), as each bucket is through before the next is made, or they queue. That is least
    for k = max(√(T/a), (T − c·S)/a). Where S or T is not known, a bucket is so large that latency takes a tenth of its
    time: 9·a/c. Never is it smaller than a/c, at which half of the bandwidth is had (n½), nor than DDP's own, 25 MiB:
    a link's latency knows nothing of what it costs a framework to begin one more; nor larger than 1 GiB, as it takes
    memory. Sources: Hockney 1994 (n½); Shi, Chu and Li 2019 (MG-WFBP: when to merge gradients, by α and β); Li et al.
    2020 (DDP's buckets).

    Args:
        latency_s: a, of an all-reduce of nothing.
        bandwidth: 1/c, bytes a second.
        size: S, bytes of all gradients of a rank; `None` where that is not known.
        backward_s: T, of one backward pass; likewise.
    """
    half = latency_s * bandwidth
    if not size or not backward_s or not latency_s:
        best = 9 * half
    else:
        best = size / max(sqrt(backward_s / latency_s), (backward_s - size / bandwidth) / latency_s, 1.0)
    return round(min(max(best, half, LEAST_BUCKET_BYTES), MOST_BUCKET_BYTES, size or inf))


def window_bytes(link: Interconnect) -> int:
    """Return the bytes that are on their way before the first is answered: 2α·B, the bandwidth-delay product.

    Who keeps a copy of what is not answered yet needs a buffer of so many to use all of a link (RFC 7323, 1.1).
    """
    return ceil(2 * link.latency_s * link.bandwidth)


class CollectiveChoice(BaseModel):
    """An algorithm for one collective, with what each that there is would take."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    collective: Literal["all_reduce", "broadcast"]
    """Which."""
    ranks: int
    """How many take part."""
    size_bytes: float
    """What each rank holds."""
    algorithm: Literal["ring", "tree", "hierarchical", "linear"]
    """What to take."""
    rule: Literal["ring", "tree"] | None = None
    """What the number of nodes alone would choose (seed 000 §5.3); the seed has no such rule for a broadcast."""
    buffer_bytes: int
    """Bytes a message: the seed's for the algorithm, or more where the link's latency asks for it."""
    seconds: dict[str, float]
    """By algorithm; `hierarchical` reduces inside the nodes first, and is there where that differs."""
    bus_bandwidth: float
    """Bytes a second on the busiest link, as nccl-tests reports it, of the chosen one."""
    crossing_bytes: float | None = None
    """Of an all-reduce: below this size a tree is faster than a ring."""
    bucket_bytes: int | None = None
    """Of an all-reduce: gradients that had best go at once, see `gradient_bucket_bytes`."""


def choose_all_reduce(
    nodes: int,
    ranks: int,
    size: float,
    link: Interconnect,
    hierarchical_s: float | None = None,
    backward_s: float | None = None,
) -> CollectiveChoice:
    """Return seed 000's choice by the number of nodes, or what α and β say where they differ from it.

    A butterfly is priced beside the others and never chosen: neither NCCL nor gloo has one.

    Args:
        nodes: nodes of the job.
        ranks: ranks that reduce with each other.
        size: bytes of one message.
        link: the slowest link of the group.
        hierarchical_s: seconds of the reduction in steps, where the group has those.
        backward_s: of the backward pass that makes what is reduced; `None` where that is not known.
    """
    rule: Literal["ring", "tree"] = "ring" if nodes <= SMALL_CLUSTER_NODES else "tree"
    crossing = crossing_bytes(ranks, link)
    chosen: Literal["ring", "tree", "hierarchical"] = rule
    if ranks > 2:
        chosen = "tree" if size < crossing else "ring"
    algorithms: tuple[Algorithm, ...] = ("ring", "tree", "butterfly")
    seconds: dict[str, float] = {name: all_reduce_s(size, ranks, link, name) for name in algorithms}
    if hierarchical_s is not None:
        seconds["hierarchical"] = hierarchical_s
        chosen = "hierarchical" if hierarchical_s < seconds[chosen] else chosen
    buffer = _buffer_bytes(TREE_BUFFER_BYTES if chosen == "tree" else RING_BUFFER_BYTES, link)
    return CollectiveChoice(
        collective="all_reduce",
        ranks=ranks,
        size_bytes=size,
        algorithm=chosen,
        rule=rule,
        buffer_bytes=buffer,
        seconds=seconds,
        bus_bandwidth=_bus_bandwidth("all_reduce", ranks, size, seconds[chosen]),
        crossing_bytes=crossing,
        bucket_bytes=bucket_of(size, ranks, link, backward_s),
    )


def bucket_of(size: float | None, ranks: int, link: Interconnect, backward_s: float | None = None) -> int | None:
    """Return the bucket for gradients that go by a ring, as `gradient_bucket_bytes`; `None` for one rank."""
    if ranks < 2:
        return None
    latency_s = all_reduce_s(0, ranks, link)
    return gradient_bucket_bytes(latency_s, 1 / (2 * (ranks - 1) / ranks / link.bandwidth), size, backward_s)


def choose_broadcast(ranks: int, size: float, link: Interconnect) -> CollectiveChoice:
    """Return the faster of the two algorithms that a job can name; a tree takes fewer rounds from four ranks on."""
    algorithms: tuple[BroadcastAlgorithm, ...] = ("tree", "linear")
    seconds = {name: broadcast_s(size, ranks, link, name) for name in algorithms}
    chosen: BroadcastAlgorithm = "tree" if seconds["tree"] < seconds["linear"] else "linear"
    return CollectiveChoice(
        collective="broadcast",
        ranks=ranks,
        size_bytes=size,
        algorithm=chosen,
        buffer_bytes=_buffer_bytes(RING_BUFFER_BYTES if chosen == "linear" else TREE_BUFFER_BYTES, link),
        seconds=seconds,
        bus_bandwidth=_bus_bandwidth("broadcast", ranks, size, seconds[chosen]),
    )


def hierarchical_all_reduce_s(size: float, ranks: int, stride: int, hardware: Hardware) -> float | None:
    """Return the seconds of an all-reduce in three steps: scatter inside each node, reduce between, gather inside.

    Between nodes each rank reduces the share it has with its like in the other nodes, over its own card.

    Returns:
        `None` where the group lies in one node, or has one rank in each.
    """
    members = max(1, min(ranks, hardware.linked // stride))
    nodes = ceil(ranks / members)
    if nodes == 1 or members == 1:
        return None
    inside = group_link(hardware, members, stride)
    between = group_link(hardware, nodes, hardware.linked)
    return 2 * all_gather_s(size, members, inside) + all_reduce_s(size / members, nodes, between)


def timed_text(choice: CollectiveChoice, written: Callable[[float], str]) -> str:
    """Return the seconds of each algorithm, the least first; the one that no library has is named as such."""
    ranked = sorted(choice.seconds.items(), key=lambda item: item[1])
    names = {"butterfly": _("butterfly (NCCL and gloo have none)")}
    return joined(", ", (names.get(algorithm, algorithm) + f" {written(value)}" for algorithm, value in ranked))


def rule_text(choice: CollectiveChoice, nodes: int) -> str | None:
    """Return what the number of nodes alone would choose, where that is another algorithm."""
    if choice.rule in (None, choice.algorithm):
        return None
    told = _("The usual rule, ring up to {limit} nodes and tree beyond, would take {rule} on {nodes}.")
    return told.format(nodes=nodes, limit=SMALL_CLUSTER_NODES, rule=choice.rule)


def _buffer_bytes(usual: int, link: Interconnect) -> int:
    """Return the seed's buffer, doubled until a message takes longer than its latency: until it is over α·B."""
    size = usual
    while size < link.latency_s * link.bandwidth:
        size *= 2
    return size


def _bus_bandwidth(collective: str, ranks: int, size: float, seconds: float) -> float:
    return size / seconds * bus_bandwidth_factor(collective, ranks) if seconds else 0.0


def group_link(hardware: Hardware, ranks: int, stride: int) -> Interconnect:
    """Return the link that a group of ranks has, `stride` ranks apart, where ranks fill one node after the other.

    A group that leaves its node crosses the network once a node, by the cards of all its members there; each step of
    a ring takes as long as its slowest hop.
    """
    efficiency = hardware.efficiency
    per_node = hardware.linked
    if (ranks - 1) * stride < per_node:
        return Interconnect(hardware.intra.bandwidth * efficiency.intra_node, hardware.intra.latency_s)
    members = max(1, min(ranks, per_node // stride))
    bandwidth = min(
        hardware.inter.bandwidth * efficiency.inter_node * members,
        hardware.intra.bandwidth * efficiency.intra_node if members > 1 else float("inf"),
    )
    return Interconnect(bandwidth, hardware.inter.latency_s)
