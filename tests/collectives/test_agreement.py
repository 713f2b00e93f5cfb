"""What ranks tell each other of what they call: how many rounds and bytes that takes, and what each knows after it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from dtagent.payload.collectives.agreement import Knowledge, Told, length_of, room_for, steps_of


def told_all(calls: Sequence[bytes], values: Sequence[bytes]) -> tuple[list[Told], list[list[int]]]:
    """Return what each rank knows in the end, and the bytes of its messages."""
    ranks = len(calls)
    known = [Knowledge(call, brought) for call, brought in zip(calls, values, strict=True)]
    sizes: list[list[int]] = [[] for _ in calls]
    for steps in zip(*(steps_of(rank, ranks) for rank in range(ranks)), strict=True):
        messages = [bytes(known[rank].message(step.ranks)) for rank, step in enumerate(steps)]
        for rank, step in enumerate(steps):
            assert steps[step.source].target == rank
            message = messages[step.source] + b"left from before"
            known[rank].add(message[: length_of(message[:8])])
            sizes[rank].append(len(messages[rank]))
            assert len(messages[rank]) <= room_for(step.ranks, max(map(len, calls)), max(map(len, values)))
    return [item.told(rank) for rank, item in enumerate(known)], sizes


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8, 9, 33])
def test_every_rank_knows_of_all_in_their_order_after_few_rounds(ranks: int) -> None:
    calls = [b"one" if rank % 3 else b"another %d" % rank for rank in range(ranks)]
    values = [bytes([rank]) * (rank % 4) for rank in range(ranks)]
    told, sizes = told_all(calls, values)
    assert told == [Told(tuple(calls), tuple(map(len, values)), b"".join(values))] * ranks
    assert {len(of_rank) for of_rank in sizes} == {(ranks - 1).bit_length()}


def test_what_all_call_alike_is_sent_once_a_round_however_many_they_are() -> None:
    told, sizes = told_all([b"all the same"] * 100, [b""] * 100)
    assert told[17].calls == (b"all the same",) * 100
    assert {tuple(of_rank) for of_rank in sizes} == {(sizes[0][0],) * 7}
