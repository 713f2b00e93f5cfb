"""One rank of a real gloo group that loses another in the middle of a collective, or is the one that is lost."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from dtagent.payload.collectives import AllReduceOperator, CollectiveTimeoutError, DistributedCommunicator
from dtagent.payload.collectives.requests import OPS

from tests.collectives.answer_times import be_patient


def tell(**found: object) -> None:
    print(json.dumps(found), flush=True)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wait() -> None:
    """Wait, in the middle of it, for whoever has started this rank; it cuts the link meanwhile."""
    tell(here=True)
    sys.stdin.readline()


ENDS: dict[str, Callable[[], None]] = {"stop": stop, "slow": stop, "kill": die, "cut": wait}


def lose_in_round(number: int, end: Callable[[], None]) -> None:
    """Have this rank come to an end when it reduces for the nth time: others are in the middle of it then."""
    add, times = OPS["sum"], 0

    def ending(own: torch.Tensor, other: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
        nonlocal times
        times += 1
        if times == number:
            end()
        return add(own, other, **more)

    OPS["sum"] = OPS["mean"] = ending


def train(comm: DistributedCommunicator, victim: int, how: str, timeout_s: float) -> None:
    """Reduce until one is lost; tell when that was heard, and what."""
    operator = AllReduceOperator(comm)
    assert operator.all_reduce(torch.ones(1000)).eq(comm.world_size).all()
    if comm.rank == victim:
        lose_in_round(2, ENDS[how])
    began = time.monotonic()
    try:
        operator.all_reduce(torch.ones(1_000_000), timeout=timeout_s)
    except CollectiveTimeoutError as error:
        took = time.monotonic() - began
        tell(took=took, missing=error.missing, message=str(error), notes=getattr(error, "__notes__", []))
        try:
            operator.all_reduce(torch.ones(1))
        except CollectiveTimeoutError as again:
            tell(again=str(again))
        if how == "cut":
            go_on(comm)


def be_late(comm: DistributedCommunicator, victim: int, timeout_s: float) -> None:
    """Wait three times for one that is late, and make the group anew; tell how long each took."""
    operator, taken = AllReduceOperator(comm), []
    for _time in range(3):
        began = time.monotonic()
        if comm.rank == victim:
            time.sleep(2 * timeout_s)
        try:
            operator.all_reduce(torch.ones(1), timeout=timeout_s)
        except CollectiveTimeoutError:
            taken.append(time.monotonic() - began)
        comm.rebuild()
    tell(taken=taken)


def go_on(comm: DistributedCommunicator) -> None:
    """Go on without the ones that are lost, where those that are left are enough."""
    try:
        comm.shrink()
    except CollectiveTimeoutError as error:
        tell(refused=str(error))
    else:
        assert AllReduceOperator(comm).all_reduce(torch.ones(10)).eq(comm.world_size).all()
        tell(rank=comm.rank, ranks=comm.original_ranks)


def main(rank: int, world_size: int, store: str, victim: int, how: str, timeout_s: float, *, hurried: bool) -> None:
    """Meet in a file, or at an address; hurried, wait for answers no longer than jobs do."""
    if how != "late" and not hurried:
        be_patient()
    host, _, port = store.rpartition(":")
    place = (
        dist.TCPStore(host, int(port), is_master=rank == 0) if host else dist.FileStore(store, world_size)  # type: ignore[attr-defined]
    )
    dist.init_process_group("gloo", store=place, rank=rank, world_size=world_size, timeout=timedelta(seconds=60))
    torch.set_num_threads(1)
    comm = DistributedCommunicator(rank, world_size, timeout_s=30)
    if how == "late":
        AllReduceOperator(comm).all_reduce(torch.ones(1))  # Torch is imported everywhere.
        be_late(comm, victim, timeout_s)
    else:
        train(comm, victim, how, timeout_s)
    sys.stdin.read()  # Until all have told.
    os._exit(0)  # Gloo may abort where its group has lost somebody.


if __name__ == "__main__":
    main(
        int(sys.argv[1]),
        int(sys.argv[2]),
        sys.argv[3],
        int(sys.argv[4]),
        sys.argv[5],
        float(sys.argv[6]),
        hurried="hurried" in sys.argv[7:],
    )
