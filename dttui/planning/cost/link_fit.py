"""What timings of messages say of links: latency α and bandwidth 1/β, regimes of sizes, and who is slow. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Literal, NamedTuple

SMALL_BYTES = 1024
"""Messages up to here take as long as an empty one."""
LATENCY_BOUND = 2.0
"""Up to so many times what the smallest takes, a size is bound by latency."""
NEAR_LINK = 0.8
"""From this share of the greatest bandwidth on, of sizes that latency does not bind, one is near what the link does."""
SLOW = 1.5
"""By what a link, or the inside of a host, has to be slower than the median of others to be named."""
ALIKE = 4.0
"""By what the links of a host may differ for it to be what slows them all, and none of them by itself."""
LATE, LATE_S = 3.0, 5e-5
"""The same of latency, which varies more from one moment to the next; and by how many seconds at least it differs."""

Regime = Literal["latency", "rising", "link"]
Pair = tuple[str, str]


class LinkFit(NamedTuple):
    """A link as the α–β model has it: a message of S bytes takes α + S/B."""

    latency_s: float
    """α, one way."""
    bandwidth: float | None
    """B = 1/β, bytes a second; `None` where no message was large enough to say it."""


class Slowness(NamedTuple):
    """A link, the inside of a host, or a host whose links all are, slower than others."""

    names: tuple[str, ...]
    """A host, or the two of a link."""
    times: float
    """How many times."""


def fit(timings: Sequence[tuple[int, float]]) -> LinkFit | None:
    """Return α and B of the sizes and seconds, one way, of messages; `None` without any.

    α is the median of the small messages, which an outlier does not move; B is of least squares of the rest with α
    held, in which the largest messages count most. What takes about as long as an empty message says nothing of B: one
    size at least has to be near what the link can do.
    """
    if not timings:
        return None
    small = [seconds for size, seconds in timings if size <= SMALL_BYTES] or [min(timings)[1]]
    latency_s = statistics.median(small)
    larger = [(size, seconds - latency_s) for size, seconds in timings if size > SMALL_BYTES]
    slope = sum(size * seconds for size, seconds in larger)
    if slope <= 0 or "link" not in regimes(timings):
        return LinkFit(latency_s, None)
    return LinkFit(latency_s, sum(size * size for size, _seconds in larger) / slope)


def fit_ring(timings: Sequence[tuple[int, float]], ranks: int) -> LinkFit | None:
    """Return α of a hop and B of a rank's link, of the sizes and seconds of all-reduces; `None` without any.

    A ring of n ranks takes 2(n-1)·α + 2(n-1)/n·S/B (Patarasuk and Yuan 2009); B is the bus bandwidth of nccl-tests.
    """
    found = fit(timings)
    if found is None or ranks < 2:
        return None
    hops = 2 * (ranks - 1)
    return LinkFit(found.latency_s / hops, None if found.bandwidth is None else found.bandwidth * hops / ranks)


def regimes(timings: Sequence[tuple[int, float]]) -> list[Regime]:
    """Return for each size and its seconds whether latency bounds it, or it is near what the link can do."""
    if not timings:
        return []
    least = min(timings)[1]
    # Where a link is limited, what goes through before the limit begins is fast, and says nothing of it.
    bound = [size / seconds for size, seconds in timings if seconds > LATENCY_BOUND * least]
    most = max(bound, default=math.inf)
    return [_regime(size, seconds, least, most) for size, seconds in timings]


def _regime(size: int, seconds: float, least: float, most: float) -> Regime:
    if seconds <= LATENCY_BOUND * least:
        return "latency"
    return "link" if size / seconds >= NEAR_LINK * most else "rising"


def slow_ones(bandwidths: Mapping[Pair, float]) -> list[Slowness]:
    """Return hosts whose links are alike and slower than the median of all others, then links by themselves.

    Of those the slowest comes first. Two hosts have one link, and nothing to compare it with.
    """
    hosts = dict.fromkeys(chain.from_iterable(bandwidths))
    found = []
    for host in hosts:
        own = [speed for pair, speed in bandwidths.items() if host in pair]
        others = [speed for pair, speed in bandwidths.items() if host not in pair]
        if others and max(own) <= ALIKE * min(own) and (times := statistics.median(others) / max(own)) >= SLOW:
            found.append(Slowness((host,), times))
    told = {item.names[0] for item in found}
    left = {pair: speed for pair, speed in bandwidths.items() if not told.intersection(pair)}
    by_themselves = []
    for pair, speed in left.items():
        others = [other for name, other in left.items() if name != pair]
        if others and (times := statistics.median(others) / speed) >= SLOW:
            by_themselves.append(Slowness(pair, times))
    return [*found, *sorted(by_themselves, key=lambda item: -item.times)]


def late_ones(latencies: Mapping[Pair, float]) -> list[Slowness]:
    """Return the same by the seconds that an empty message takes."""
    usual = statistics.median(latencies.values()) if latencies else 0.0
    found = []
    for item in slow_ones({pair: 1 / seconds for pair, seconds in latencies.items()}):
        least = min(seconds for pair, seconds in latencies.items() if {*item.names} <= {*pair})
        if item.times >= LATE and least - usual >= LATE_S:
            found.append(item)
    return found


def slow_insides(bandwidths: Mapping[str, float]) -> list[Slowness]:
    """Return hosts inside which collectives of as many ranks are slower than the median of the other hosts."""
    found = []
    for host, speed in bandwidths.items():
        others = [other for name, other in bandwidths.items() if name != host]
        if others and (times := statistics.median(others) / speed) >= SLOW:
            found.append(Slowness((host,), times))
    return found
