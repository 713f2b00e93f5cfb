"""Which pairs of hosts are measured at once: pure. Each host is in one pair at a time, so that no card is shared.

Hosts of one zone are taken to reach each other without sharing anything but a switch that carries all of them. What is
between zones shares an uplink, so a zone takes part in one such pair at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

ALL_PAIRS_HOSTS = 8
"""Up to so many hosts each is measured with each; beyond, with the next."""

Pair = tuple[int, int]


def pairs_of(hosts: Sequence[int]) -> list[Pair]:
    """Return which hosts are measured with which."""
    if len(hosts) <= ALL_PAIRS_HOSTS:
        return list(itertools.combinations(hosts, 2))
    return [(host, hosts[(place + 1) % len(hosts)]) for place, host in enumerate(hosts)]


def rounds_of(pairs: Sequence[Pair], zones: Sequence[str]) -> list[list[Pair]]:
    """Return pairs by rounds, those of each at once; every pair is in one.

    Args:
        pairs: of hosts, by number.
        zones: of each host; empty where nothing is known, which is then one zone.
    """

    def uplinks(pair: Pair) -> set[str]:
        ends = {zones[host] for host in pair} if zones else set()
        return ends if len(ends) > 1 else set()

    # What is between zones first: fewest of it go together, and the rest finds room beside it.
    left, rounds = sorted(pairs, key=lambda pair: not uplinks(pair)), []
    while left:
        taken: set[int | str] = set()
        at_once = []
        for here, there in left:
            wants: set[int | str] = {here, there, *uplinks((here, there))}
            if not taken & wants:
                taken |= wants
                at_once.append((here, there))
        left = [pair for pair in left if pair not in at_once]
        rounds.append(at_once)
    return rounds
