"""For whom the others wait, by when each rank called its collectives."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from statistics import median

import pytest

from dttui.diagnosis.lateness import lateness

STEPS = 40


def blocking(
    computing_s: Sequence[float], clocks: Sequence[float] | None = None, calls: int = 1
) -> dict[int, dict[int, float]]:
    """Return when ranks call that compute for so long and then make collectives, each of which waits for all."""
    clocks = clocks or [0.0] * len(computing_s)
    now, number = 100.0, 0
    times: dict[int, dict[int, float]] = {rank: {} for rank in range(len(computing_s))}
    for _step in range(STEPS):
        for call in range(calls):
            number += 1
            arrivals = [now + (own if call == 0 else 0.001) for own in computing_s]
            for rank, at in enumerate(arrivals):
                times[rank][number] = at + clocks[rank]
            now = max(arrivals) + 0.005
    return times


def overlapping(computing_s: Sequence[float], buckets: int = 8) -> dict[int, dict[int, float]]:
    """Return when ranks call that send a bucket of gradients while they compute the next, and wait once a step."""
    now, number = 100.0, 0
    times: dict[int, dict[int, float]] = {rank: {} for rank in range(len(computing_s))}
    for _step in range(STEPS):
        for bucket in range(1, buckets + 1):
            for rank, own in enumerate(computing_s):
                times[rank][number + bucket] = now + own * bucket / buckets
        number += buckets
        now += max(computing_s) + 0.005
    return times


@pytest.mark.parametrize("calls", [1, 5])
def test_the_share_is_what_the_others_wait(calls: int) -> None:
    found = lateness(blocking([0.2, 0.2, 0.3, 0.2], calls=calls))
    assert found[2].share == pytest.approx(0.1 / 0.3, rel=0.15)
    assert found[2].late_s == pytest.approx(0.1)
    assert [found[rank].share for rank in (0, 1, 3)] == [0.0, 0.0, 0.0]


def test_what_is_sent_while_the_next_is_computed_counts_once_a_step() -> None:
    found = lateness(overlapping([0.2, 0.4, 0.2]))
    assert found[1].share == pytest.approx(0.2 / 0.4, rel=0.15)
    assert found[0].share == found[2].share == 0.0


def test_clocks_that_are_milliseconds_apart_name_nobody() -> None:
    assert all(item.share == 0.0 for item in lateness(blocking([0.2] * 4, [0.0, 0.015, -0.004, 0.01])).values())


def test_equal_ranks_are_not_named_for_what_is_chance() -> None:
    chance = random.Random(7)
    for _round in range(200):
        times = blocking([0.0] * 4)
        now = 100.0
        for number in range(1, STEPS + 1):
            arrivals = [now + max(0.05, chance.gauss(0.2, 0.01)) for _rank in range(4)]
            for rank, at in enumerate(arrivals):
                times[rank][number] = at
            now = max(arrivals)
        assert max(item.share for item in lateness(times).values()) < 0.1


def test_two_ranks_on_a_slow_host_are_both_seen() -> None:
    found = lateness(blocking([0.2, 0.2, 0.2, 0.3, 0.3]))
    assert found[3].share > 0.25
    assert found[4].share > 0.25


def test_too_little_says_nothing() -> None:
    assert lateness({}) == {}
    assert lateness({0: {1: 1.0, 2: 2.0}}) == {}
    assert lateness({0: {1: 1.0, 2: 2.0}, 1: {1: 1.0, 2: 2.0}}) == {}
    assert lateness({0: dict.fromkeys(range(9), 1.0), 1: dict.fromkeys(range(9), 1.0)}) == {}
    assert lateness({0: {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}, 1: {11: 1.0, 12: 2.0, 13: 3.0, 14: 4.0}}) == {}


def test_a_thousand_ranks_are_judged_within_seconds() -> None:
    """Where each rank's median was found by sorting all others, it took minutes."""
    began = time.process_time()
    found = lateness(blocking([0.3, *[0.2] * 999], calls=5))
    assert time.process_time() - began < 10
    assert (found[0].share > 0.2, found[1].share) == (True, 0.0)


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
def test_a_rank_is_late_by_the_median_of_the_others(ranks: int) -> None:
    chance = random.Random(ranks)
    times = {rank: {number: 10.0 * number + chance.random() for number in range(1, 6)} for rank in range(ranks)}
    for rank, item in lateness(times).items():
        late = [
            own - median(times[other][number] for other in times if other != rank)
            for number, own in times[rank].items()
        ]
        assert item.late_s == pytest.approx(median([one for one in late if one >= 0.02] or [0.0]))
