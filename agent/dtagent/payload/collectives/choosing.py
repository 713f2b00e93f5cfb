"""Which algorithm an all-reduce goes by where none is named: the one that takes least by the α and β of the links.

All ranks choose alike, as what they choose by is the same on all: the vector's size, and what the launch has told them.
Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, log2
from typing import NamedTuple

from .clock import NetworkLink
from .schedules import ALGORITHMS, Collective

SMALL_BYTES = 1 << 18
"""Up to here an all-reduce goes by a tree where latency and bandwidth are not known: fewer rounds count for more than
fewer bytes."""
MOST_BUTTERFLY_BYTES = 1 << 21
"""Up to one segment of `pipeline`: of several, a ring's rounds overlap and a butterfly's do not."""


class KnownLinks(NamedTuple):
    """What is known of a job's links."""

    between: NetworkLink
    """The slowest between two hosts; what a host sends, all of its ranks share."""
    inside: NetworkLink | None = None
    """The slowest inside of a host."""

    def link_of(self, hosts: Sequence[Sequence[int]] | None) -> Callable[[int, int], NetworkLink]:
        """Return what has the link from one rank to another, where each rank is on a host of its own without hosts."""
        host_of = {rank: index for index, members in enumerate(hosts or ()) for rank in members}
        inside = self.inside or self.between
        return lambda source, target: (
            inside if host_of.get(source, source) == host_of.get(target, target) else self.between
        )


def usual_algorithm(
    kind: Collective,
    ranks: int,
    size_bytes: int,
    hosts: Sequence[Sequence[int]] | None = None,
    network: KnownLinks | None = None,
) -> str:
    """Return the algorithm that is taken where none is named.

    Without a network an all-reduce of more than two ranks goes by a tree up to `SMALL_BYTES`, and by a ring beyond: a
    ring of n ranks takes 2(n-1) rounds, a tree 2⌈log₂n⌉ with all of the vector in each (Thakur et al. 2005).

    Args:
        kind: of which collective.
        ranks: how many.
        size_bytes: of the vector.
        hosts: the ranks of each; `None` where that is not known.
        network: `None` likewise.
    """
    if kind is not Collective.ALL_REDUCE or ranks < 2:
        return ALGORITHMS[kind][0]
    if network is None:
        return "tree" if ranks > 2 and size_bytes <= SMALL_BYTES else "ring"
    found = all_reduce_seconds(ranks, size_bytes, hosts, network)
    return min(found, key=lambda name: found[name])


def all_reduce_seconds(
    ranks: int, size_bytes: int, hosts: Sequence[Sequence[int]] | None, network: KnownLinks
) -> dict[str, float]:
    """Return the seconds of an all-reduce by each algorithm that may be taken, the usual one first.

    Ring: 2(n-1)(α + S/(n·B)). Tree: 2⌈log₂n⌉(α + S/B). Butterfly, of n a power of two and one rank a host, as others
    would be in each other's way: 2log₂n·α + 2(n-1)/n·S/B. They go over the slowest of their links. Hierarchical, of h
    hosts with m ranks each: 2(m-1)(αᵢ + S/(m·Bᵢ)) inside and 2(h-1)(α + S/(h·B)) between, where the m rings share what
    a host sends; where some have fewer ranks, one speaks for each: 2⌈log₂m⌉(αᵢ + S/Bᵢ) inside.

    Args:
        ranks: n.
        size_bytes: S.
        hosts: the ranks of each.
        network: α of a link is its latency, B its bandwidth.
    """
    sizes = [len(host) for host in hosts or [[rank] for rank in range(ranks)]]
    inside, members = network.inside, max(sizes)
    link = network.between if len(sizes) > 1 else inside or network.between
    levels = ceil(log2(ranks))
    around = 2 * (ranks - 1) * _seconds(link, size_bytes / ranks)
    found = {"ring": around, "tree": 2 * levels * _seconds(link, size_bytes)}
    if members == 1 and ranks == 1 << levels and size_bytes <= MOST_BUTTERFLY_BYTES:
        found["butterfly"] = 2 * levels * link.latency_s + 2 * (ranks - 1) / ranks * size_bytes / link.bandwidth
    if inside is not None and len(sizes) > 1 and members > 1:
        if min(sizes) == members:
            within = 2 * (members - 1) * _seconds(inside, size_bytes / members)
        else:
            within = 2 * ceil(log2(members)) * _seconds(inside, size_bytes)
        between = 2 * (len(sizes) - 1) * _seconds(network.between, size_bytes / len(sizes))
        found["hierarchical"] = within + between
    return found


def _seconds(link: NetworkLink, size_bytes: float) -> float:
    return link.latency_s + size_bytes / link.bandwidth
