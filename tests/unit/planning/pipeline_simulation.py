"""Pipeline schedules played out event by event: when each rank works on which micro-batch, and when all are done."""

from __future__ import annotations

from typing import NamedTuple

FORWARD = 1.0
BACKWARD = 2.0


class Work(NamedTuple):
    """One pass of one chunk of a rank over one micro-batch."""

    is_forward: bool
    chunk: int
    micro_batch: int


def gpipe(count: int) -> list[Work]:
    """All forward, then all backward (Huang et al. 2019)."""
    return [Work(True, 0, index) for index in range(count)] + [Work(False, 0, index) for index in range(count)]


def interleaved(stages: int, rank: int, chunks: int, count: int) -> list[Work]:
    """Micro-batches go in groups, as many as there are stages, each through all chunks; with one chunk it is 1F1B."""
    total = count * chunks
    if chunks == 1:
        warm = min(stages - rank - 1, total)
    else:
        warm = total if count == stages else min(2 * (stages - rank - 1) + (chunks - 1) * stages, total)

    def work(index: int, *, is_forward: bool) -> Work:
        group, within = divmod(index, stages * chunks)
        chunk = within // stages
        return Work(is_forward, chunk if is_forward else chunks - 1 - chunk, group * stages + within % stages)

    order = [work(index, is_forward=True) for index in range(warm)]
    for index in range(total - warm):
        order += [work(warm + index, is_forward=True), work(index, is_forward=False)]
    return order + [work(index, is_forward=False) for index in range(total - warm, total)]


def makespan(orders: list[list[Work]], stages: int, chunks: int) -> float:
    """Return when the last rank is done; each piece of work waits for its rank and for what it depends on."""
    done: dict[tuple[int, Work], float] = {}
    clock = [0.0] * stages
    position = [0] * stages
    while any(position[rank] < len(orders[rank]) for rank in range(stages)):
        moved = False
        for rank in range(stages):
            while position[rank] < len(orders[rank]):
                work = orders[rank][position[rank]]
                ready = _ready(work, rank, stages, chunks, done)
                if ready is None:
                    break
                clock[rank] = max(clock[rank], ready) + (FORWARD if work.is_forward else BACKWARD)
                done[rank, work] = clock[rank]
                position[rank] += 1
                moved = True
        assert moved, "the schedule waits for itself"
    return max(clock)


def _ready(work: Work, rank: int, stages: int, chunks: int, done: dict[tuple[int, Work], float]) -> float | None:
    """When what this work needs is there: the stage before for forward, the stage after for backward."""
    stage = work.chunk * stages + rank
    if work.is_forward and stage == 0:
        return 0.0
    if not work.is_forward and stage == stages * chunks - 1:
        return done.get((rank, work._replace(is_forward=True)))
    near = stage - 1 if work.is_forward else stage + 1
    return done.get((near % stages, work._replace(chunk=near // stages)))
