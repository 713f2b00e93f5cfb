"""A collective on a network that is not there: a virtual clock over the schedules, for any number of ranks.

No tensor is made and nothing is sent. A rank begins a round when what it sent and got in the one before has arrived; a
message takes the latency of its link and its bytes by the bandwidth. A rank sends one message at a time, and receives
one at a time meanwhile, as in the alpha-beta model of Thakur et al. (2005): a message begins when both ends are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .schedules import Schedule


class NetworkLink(NamedTuple):
    """What a message goes over, in one direction."""

    latency_s: float
    bandwidth: float
    """Bytes a second."""


class Timeline(NamedTuple):
    """What became of a collective."""

    seconds: float
    """Until the last rank had its result."""
    rounds: int
    messages: list[int]
    """By rank: how many it sent."""
    sent_bytes: list[int]
    """By rank."""
    received_bytes: list[int]
    """By rank."""


def simulate(
    schedules: Iterable[Schedule], element_bytes: int, link: Callable[[int, int], NetworkLink] | NetworkLink
) -> Timeline:
    """Return how long a collective takes, and what each rank has to do for it.

    Args:
        schedules: of each rank, the first one first.
        element_bytes: size of an element.
        link: of all pairs, or from one rank to another.
    """
    makes = list(schedules)
    count = len(makes)
    free, listens = [0.0] * count, [0.0] * count
    messages, sent, received = [0] * count, [0] * count, [0] * count
    rounds = 0
    alike = link if isinstance(link, NetworkLink) else None
    for transfers_of in zip(*makes):
        rounds += 1
        ends = list(free)
        for rank, transfers in enumerate(transfers_of):
            at = free[rank]
            for source, target, begin, end, _reduces in transfers:
                if source != rank or begin == end:
                    continue
                over: NetworkLink = alike or link(source, target)  # type: ignore[operator]  # else it is a function
                size = (end - begin) * element_bytes
                at = max(at, listens[target]) + over.latency_s + size / over.bandwidth
                listens[target] = at
                ends[target] = max(ends[target], at)
                messages[rank] += 1
                sent[rank] += size
                received[target] += size
            ends[rank] = max(ends[rank], at)
        free = ends
    return Timeline(max(free, default=0.0), rounds, messages, sent, received)
