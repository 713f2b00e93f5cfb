"""Which hosts are measured with which, and which of those pairs at once."""

from __future__ import annotations

from collections import Counter
from itertools import chain, combinations

import pytest

pytest.importorskip("torch")

from dtagent.payload.collectives.pair_rounds import pairs_of, rounds_of


@pytest.mark.parametrize("hosts", range(2, 9))
def test_each_pair_is_in_one_round_and_a_host_once_in_each(hosts: int) -> None:
    rounds = rounds_of(pairs_of(range(hosts)), [])
    assert sorted(chain.from_iterable(rounds)) == list(combinations(range(hosts), 2))
    for pairs in rounds:
        assert max(Counter(chain.from_iterable(pairs)).values()) == 1


def test_eight_hosts_take_seven_rounds_and_a_hundred_three_at_most() -> None:
    assert len(rounds_of(pairs_of(range(8)), [])) == 7
    assert len(rounds_of(pairs_of(range(101)), [])) <= 3


def test_between_two_zones_one_pair_is_measured_at_a_time() -> None:
    zones = ["a"] * 4 + ["b"] * 4
    rounds = rounds_of(pairs_of(range(8)), zones)
    assert sum(len(pairs) for pairs in rounds) == 28
    for pairs in rounds:
        assert len([pair for pair in pairs if zones[pair[0]] != zones[pair[1]]]) <= 1
    assert len(rounds) == 16
