"""Ranks in threads of one process: what each returns, and the first error of any."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from dtagent.payload.collectives import CollectiveError, DistributedCommunicator, create_ring_topology

Result = TypeVar("Result")
DEADLINE_S = 30


def in_threads(world_size: int, work: Callable[[DistributedCommunicator], Result]) -> list[Result]:
    """Return what each rank returns; raises what the first of them raises."""
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}

    def run(comm: DistributedCommunicator) -> None:
        try:
            results[comm.rank] = work(comm)
        except (CollectiveError, TimeoutError, AssertionError, RuntimeError) as error:
            errors[comm.rank] = error

    threads = [threading.Thread(target=run, args=[comm]) for comm in create_ring_topology(world_size, threads=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    if errors:
        raise errors[min(errors)]
    return [results[rank] for rank in range(world_size)]
