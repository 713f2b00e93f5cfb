"""One rank that an MPI has started: does what those of gloo do, or loses another in the middle of a collective."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from unittest.mock import patch

import torch
import torch.distributed as dist
from dtagent.payload.collectives import (
    AllReduceOperator,
    CollectiveError,
    CollectiveTimeoutError,
    DistributedCommunicator,
    communicator,
    mpi_communicator,
)
from dtagent.payload.collectives.mpi_group import MpiGroup

from tests.collectives.answer_times import be_patient
from tests.collectives.gloo_ranks import check, check_messages, missed, said
from tests.collectives.lost_ranks import lose_in_round, stop


def lose(comm: DistributedCommunicator, timeout_s: float) -> dict[str, object]:
    """Return what this rank hears when the last one stops in the middle of a ring; that one hears nothing."""
    operator = AllReduceOperator(comm)
    operator.all_reduce(torch.ones(100))
    if comm.rank == comm.world_size - 1:
        lose_in_round(2, stop)
    began = time.monotonic()
    try:
        operator.all_reduce(torch.ones(1_000_000), timeout=timeout_s)
    except CollectiveTimeoutError as error:
        took, told = time.monotonic() - began, []
        for call in (lambda: operator.all_reduce(torch.ones(1)), comm.shrink, comm.rebuild):
            try:
                call()
            except (CollectiveError, CollectiveTimeoutError) as refusal:
                told.append(str(refusal))
        return {"missing": error.missing, "took": took, "refused": told}
    return {}


def over_torch(comm: DistributedCommunicator, store: str) -> dict[str, object]:
    """Return what carries a process group of torch's over MPI, and some of its ranks, and what these add up to.

    Where torch was built without an MPI, gloo takes the place of its messages, of which the operators use none.
    """
    rank, ranks = comm.rank, comm.world_size
    if dist.is_mpi_available():
        dist.init_process_group("mpi")
    else:
        dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)  # type: ignore[attr-defined]  # it is in no `__all__`
        patch.object(communicator, "backend_of", return_value="mpi").start()
    whole = DistributedCommunicator(rank, ranks)
    few = dist.new_group([0, 2])
    sums, names = [AllReduceOperator(whole).all_reduce(torch.tensor([rank])).item()], [whole.backend]
    if rank in (0, 2):
        part = DistributedCommunicator(dist.get_rank(few), 2, communicator.group_over(few))
        sums.append(AllReduceOperator(part).all_reduce(torch.tensor([rank])).item())
        names.append(part.backend)
    return {"sums": sums, "names": names}


def main(what: str) -> None:
    be_patient()
    torch.set_num_threads(1)
    comm = mpi_communicator(timeout_s=60)
    assert comm.backend == "mpi"
    found: dict[str, object] = {"rank": comm.rank, "ranks": comm.world_size}
    if what == "torch":
        found.update(over_torch(comm, sys.argv[2]))
    elif what == "lose":
        found.update(lose(comm, 6.0))
    else:
        found["count"] = check(comm, lambda hosts: MpiGroup(hosts=hosts))
        check_messages(comm)
        found["errors"] = said(comm)
        (row,) = AllReduceOperator(comm).benchmark([(1000,)], num_trials=2)
        found["seconds"] = row.seconds
        found["missed"] = missed(comm) if comm.world_size > 2 else []
    sys.stdout.flush()
    os.write(1, f"{json.dumps(found)}\n".encode())  # At once: no other line comes between.
    if what == "lose":
        signal.pause()  # Until all have told and the job is ended: what has lost a rank cannot end by itself.


if __name__ == "__main__":
    main(sys.argv[1])
