"""Ranks of one process that wait for others in vain: who comes too late, and who has forgotten to be of a group."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from dtagent.payload.collectives import (
    AllReduceOperator,
    CollectiveTimeoutError,
    DistributedCommunicator,
    PendingError,
    create_ring_topology,
)


@pytest.mark.parametrize("what", ["all_reduce", "barrier"])
def test_who_comes_too_late_hears_that_it_was_given_up_and_takes_part_in_the_next(what: str) -> None:
    comms = create_ring_topology(2, threads=True)

    def call(comm: DistributedCommunicator, timeout_s: float) -> None:
        comm.timeout_s = timeout_s
        if what == "barrier":
            comm.barrier()
        else:
            AllReduceOperator(comm).all_reduce(torch.ones(1))

    with pytest.raises(CollectiveTimeoutError, match=rf"{what} timed out after 0.05 s: rank 1 did not call"):
        call(comms[0], 0.05)
    with pytest.raises(CollectiveTimeoutError, match=rf"{what} was broken off: rank 0 gave this rank up") as late:
        call(comms[1], 0.05)
    assert late.value.missing == (0,)
    threads = [threading.Thread(target=call, args=[comm, 30.0]) for comm in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("is_made", [False, True])
def test_a_rank_of_several_processes_that_is_alone_is_told_what_it_may_have_forgotten(
    is_made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setattr(dist, "is_initialized", lambda: is_made)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 3)
    found = AllReduceOperator(DistributedCommunicator(0, 3)).all_reduce(torch.ones(1))
    with pytest.raises(PendingError) as early:
        found.sum()
    why = "torch's process group has rank 1 of 3 here" if is_made else "call torch.distributed.init_process_group"
    assert why in str(early.value)
