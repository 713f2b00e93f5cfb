"""Which rank the others wait for, by when each called its collectives. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

LEAST_CALLS = 4
"""Collectives that all ranks have to have called before anything is said of them."""
LEAST_LATE_S = 0.02
"""Later than the others by less: so far the clocks of hosts may be apart."""


@dataclass(frozen=True)
class Lateness:
    """How much the other ranks wait for one."""

    rank: int
    share: float
    """Of the time in which the collectives were called, 0 to 1."""
    late_s: float
    """By how much it comes later than the median of the others where it is late: the median."""


def lateness(times: Mapping[int, Mapping[int, float]]) -> dict[int, Lateness]:
    """Return for each rank of a process group how much the others wait for it; empty where too little is known.

    A rank is late at a collective by what it calls it later than the median of the others. Where all had called the one
    before ere any called this one, they set out together, and all of that is new; else only what it has fallen behind
    since then, as of gradients that are sent while the next ones are computed.

    Args:
        times: rank → number of a collective → when it called it, s, all by one clock.
    """
    if len(times) < 2:
        return {}
    common = sorted(set.intersection(*(set(own) for own in times.values())))
    if len(common) < LEAST_CALLS:
        return {}
    span = median(own[common[-1]] - own[common[0]] for own in times.values())
    if span <= 0:
        return {}
    rounds = [_Round(sorted(own[number] for own in times.values())) for number in common]
    found = {}
    for rank, own in times.items():
        before, gained, delays = 0.0, 0.0, []
        for index, (number, arrivals) in enumerate(zip(common, rounds, strict=True)):
            late = own[number] - arrivals.median_without(own[number])
            if index and arrivals.first >= rounds[index - 1].last:
                before = 0.0
            if late >= LEAST_LATE_S and late > before:
                # Before the first collective nothing is known of when they set out.
                gained += late - max(before, 0.0) if index else 0.0
                delays.append(late)
            before = late
        found[rank] = Lateness(rank, min(gained / span, 1.0), median(delays) if delays else 0.0)
    return found


@dataclass(frozen=True)
class _Round:
    """When the ranks called one collective."""

    times: list[float]
    """In order."""

    @property
    def first(self) -> float:
        return self.times[0]

    @property
    def last(self) -> float:
        return self.times[-1]

    def median_without(self, own: float) -> float:
        """Return the median of all but the one that called it then, without sorting a thousand ranks anew."""
        place, left = bisect_left(self.times, own), len(self.times) - 1
        low, high = (index + (index >= place) for index in ((left - 1) // 2, left // 2))
        return (self.times[low] + self.times[high]) / 2
