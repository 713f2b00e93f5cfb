"""One rank of a training over gloo that loses others in the middle of collectives, and goes on each time."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from dtagent.payload.collectives import (
    AllReduceOperator,
    CollectiveTimeoutError,
    DistributedCommunicator,
    broadcast_state,
)

from tests.collectives.answer_times import be_patient
from tests.collectives.lost_ranks import ENDS, die, lose_in_round, tell


def train(comm: DistributedCommunicator, plan: dict[int, tuple[int, str]], steps: int, dies_after: int | None) -> None:
    """Fit a number of parameters by gradients of all ranks; tell of each loss, and what came out.

    Args:
        comm: of this rank.
        plan: step → the rank that is lost in it, by its first number, and how: where it is `slow`, for a while.
        steps: how many.
        dies_after: the rank that ends after the first loss, before it has called any collective of the new group; then
            ranks do nothing together before the first step.
    """
    torch.manual_seed(comm.rank if dies_after is None else 0)
    model = torch.nn.Linear(300, 200, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    operator, step = AllReduceOperator(comm, "ring"), 0
    weights = [model.weight]

    def equalise() -> int:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        found = broadcast_state(comm, state)
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        return int(found["step"])

    if dies_after is None:
        equalise()
    done: set[int] = set()
    while step < steps:
        victim, how = plan.get(step, (None, ""))
        if comm.original_rank == victim and step not in done:
            done.add(step)
            lose_in_round(min(2, comm.world_size - 1), ENDS[how])
        try:
            target = float(comm.original_rank + step)
            optimizer.zero_grad()
            (weights[0] - target).pow(2).sum().backward()  # type: ignore[no-untyped-call]
            assert weights[0].grad is not None
            operator.all_reduce(weights[0].grad, "mean", in_place=True)
            optimizer.step()
            step += 1
        except CollectiveTimeoutError as error:
            tell(missing=error.missing, message=str(error))
            began = time.monotonic()
            while True:
                if how == "slow":
                    comm.rebuild()
                else:
                    comm.shrink()
                if comm.original_rank == dies_after:
                    die()
                try:
                    step = equalise()
                    break
                except CollectiveTimeoutError as another:
                    tell(missing=another.missing, message=str(another))
            tell(took=time.monotonic() - began, rank=comm.rank, ranks=comm.original_ranks)
    tell(step=step, sum=weights[0].double().sum().item())


def main(rank: int, world_size: int, place: str, timeout_s: float, *losses: str) -> None:
    be_patient()
    store = dist.FileStore(place, world_size)  # type: ignore[attr-defined]  # it is in no `__all__`
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=60))
    torch.set_num_threads(1)
    comm = DistributedCommunicator(rank, world_size, timeout_s=30)
    dies_after = next((int(word.partition(":")[2]) for word in losses if word.startswith("then:")), None)
    if dies_after is None:
        AllReduceOperator(comm).all_reduce(torch.ones(1))  # Torch is imported everywhere.
        comm.timeout_s = timeout_s
    found = [loss.split(":") for loss in losses if not loss.startswith("then:")]
    plan = {int(step): (int(victim), how) for step, victim, how in found}
    train(comm, plan, max(plan) + 3, dies_after)
    sys.stdin.read()  # Until all have told.
    os._exit(0)  # Gloo may abort where its group has lost somebody.


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4]), *sys.argv[5:])
