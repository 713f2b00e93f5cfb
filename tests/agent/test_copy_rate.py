"""How fast a copy of a checkpoint is sent, by a clock that moves only as it is told to."""

from __future__ import annotations

import pytest
from dtagent.replication import sending

MIB = 1 << 20


class _Clock:
    """A clock that moves only while somebody sleeps, or by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(0.0, seconds)


@pytest.mark.parametrize(
    ("bytes_per_s", "least_s"),
    [
        (10 * MIB, 1.0),
        (20 * MIB, 0.5),
        (0, 0.0),  # As fast as it goes.
        (1, 10 * MIB / sending.LEAST_RATE),  # So slow that it would come to no end.
    ],
)
def test_a_copy_is_sent_no_faster_than_its_rate(
    bytes_per_s: int, least_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock()
    monkeypatch.setattr(sending, "time", clock)
    limit, began = sending.RateLimit(bytes_per_s), clock.now
    for _ in range(10):
        limit.spend(MIB)
    assert clock.now - began == pytest.approx(least_s)


def test_time_in_which_nothing_of_a_copy_was_sent_is_not_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    monkeypatch.setattr(sending, "time", clock)
    limit = sending.RateLimit(10 * MIB)
    limit.spend(5 * MIB)
    clock.now += 60.0
    before = clock.now
    limit.spend(10 * MIB)
    assert clock.now - before == pytest.approx(1.0)
