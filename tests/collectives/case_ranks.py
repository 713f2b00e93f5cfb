"""Ranks of all world sizes up to nine, over gloo or MPI, that do one collective after another as they are told to.

Each reads cases from a pipe of its own, does those of groups that it is in, and tells by another what went wrong. Over
gloo one process imports torch, which takes seconds, and is forked; an MPI starts each by itself.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from dtagent.payload.collectives import CollectiveError, DistributedCommunicator
from dtagent.payload.collectives.torch_group import TorchGroup

from tests.collectives.cases import MOST_RANKS, Case, by_torch, called, mistake

TIMEOUT_S = 60.0


def serve(rank: int, place: Path, groups: Mapping[int, tuple[DistributedCommunicator, Any]]) -> None:
    """Do what comes, until nothing does any more.

    Args:
        rank: among all.
        place: of the pipes.
        groups: world size → the first so many ranks, and torch's process group of them, if there is one.
    """
    told = os.open(place / "told", os.O_WRONLY)
    with (place / f"rank-{rank}").open() as lines:
        for line in lines:
            case = Case(*json.loads(line))
            if rank >= case.world_size:
                continue
            comm, group = groups[case.world_size]
            try:
                own, found = called(case, comm)
                wrong = mistake(case, rank, own, found)
                native = by_torch(case, own, group) if group is not None and not case.in_place else None
                if native is not None and not wrong and not torch.equal(native, found):
                    wrong = f"rank {rank} got {found}, and {native} of torch's own"
            except (CollectiveError, TimeoutError, RuntimeError) as error:
                wrong = f"rank {rank}: {type(error).__name__}: {error}"
            os.write(told, f"{json.dumps(wrong[:800])}\n".encode())  # Short enough to come in one piece.


def over_gloo(place: Path) -> None:
    """Be all ranks, as one process each."""
    rank = next((rank for rank in range(1, MOST_RANKS) if not os.fork()), 0)
    torch.set_num_threads(1)
    store = dist.FileStore(str(place / "store"), MOST_RANKS)  # type: ignore[attr-defined]  # it is in no `__all__`
    limit = timedelta(seconds=TIMEOUT_S)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=MOST_RANKS, timeout=limit)
    made = {size: dist.new_group(list(range(size))) for size in range(1, MOST_RANKS + 1)}
    groups = {
        size: (DistributedCommunicator(rank, size, TorchGroup(group), timeout_s=TIMEOUT_S), group)
        for size, group in made.items()
        if rank < size
    }
    serve(rank, place, groups)


def over_mpi(place: Path) -> None:
    """Be one rank, as which an MPI has started this process."""
    from dtagent.payload.collectives.mpi_group import MpiGroup
    from mpi4py import MPI

    torch.set_num_threads(1)
    rank, groups = MPI.COMM_WORLD.Get_rank(), {}
    for size in range(1, MOST_RANKS + 1):
        part = MPI.COMM_WORLD.Split(0 if rank < size else MPI.UNDEFINED, rank)
        if rank < size:
            groups[size] = DistributedCommunicator(rank, size, MpiGroup(part), timeout_s=TIMEOUT_S), None
    serve(rank, place, groups)


if __name__ == "__main__":
    {"gloo": over_gloo, "mpi": over_mpi}[sys.argv[1]](Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)  # Gloo's threads abort a process now and then that takes itself down.
