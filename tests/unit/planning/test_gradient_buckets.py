"""The size of gradient buckets by α and β, against every number of buckets played out."""

from __future__ import annotations

from math import inf

import pytest

from dttui.planning.cost.collectives import LEAST_BUCKET_BYTES, MOST_BUCKET_BYTES, all_reduce_s, bucket_of, window_bytes
from dttui.planning.cost.hardware import Interconnect

CASES = [
    (link, ranks, size, backward_s)
    for link in (Interconnect(1.25e9, 50e-6), Interconnect(1.25e9, 8e-3), Interconnect(25e9, 10e-6))
    for ranks in (2, 4, 16)
    for size in (4e6, 400e6, 4e9)
    for backward_s in (0.02, 0.5, 3.0)
]


def played_out(buckets: float, size: float, backward_s: float, ranks: int, link: Interconnect) -> float:
    """Return when the last of so many buckets is reduced: one after another, each once it is made."""
    done_s, count = 0.0, max(1, round(buckets))
    for number in range(1, count + 1):
        done_s = max(done_s, backward_s * number / count) + all_reduce_s(size / count, ranks, link)
    return done_s


@pytest.mark.parametrize(("link", "ranks", "size", "backward_s"), CASES)
def test_no_other_number_of_buckets_is_through_much_earlier(
    link: Interconnect, ranks: int, size: float, backward_s: float
) -> None:
    chosen = bucket_of(size, ranks, link, backward_s)
    assert chosen is not None
    took_s = played_out(size / chosen, size, backward_s, ranks, link)
    least = max(LEAST_BUCKET_BYTES, ranks * link.latency_s * link.bandwidth)
    allowed = [count for count in range(1, 400) if least <= size / count <= MOST_BUCKET_BYTES] or [1]
    best_s = min(played_out(count, size, backward_s, ranks, link) for count in allowed)
    assert took_s <= 1.03 * best_s


def test_a_bucket_is_never_smaller_than_half_the_bandwidth_wants_nor_larger_than_the_gradients() -> None:
    link = Interconnect(1.25e9, 500e-6)
    assert bucket_of(None, 8, link) == pytest.approx(9 * 8 * 500e-6 * 1.25e9)
    assert bucket_of(1e5, 4, link) == 1e5
    assert bucket_of(400e6, 4, link, inf) == LEAST_BUCKET_BYTES
    assert bucket_of(400e6, 64, link, inf) == pytest.approx(64 * 500e-6 * 1.25e9)
    assert bucket_of(None, 4, Interconnect(1.25e9, 1.0)) == MOST_BUCKET_BYTES
    assert bucket_of(None, 1, link) is None


def test_what_is_on_the_way_is_bandwidth_by_round_trip() -> None:
    assert window_bytes(Interconnect(1.25e9, 8e-3)) == 20_000_000
