"""Ways to train one model: alone, by DDP, by seed 003's loop, by hooks, accumulated, compressed; and its ParallelModel.

As a program it is one rank of a real gloo group, and the first rank prints the losses of each way.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from dtagent.payload.collectives import (
    AllGatherOperator,
    AllReduceOperator,
    DistributedCommunicator,
    GradientSynchronizer,
    HalfPrecision,
    ReduceScatterOperator,
)
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from tests.gloo import leave

STEPS, ROWS, WIDTH, CLASSES, RATE = 8, 24, 12, 4, 0.5
Rows = tuple[torch.Tensor, torch.Tensor]


class ParallelModel(nn.Module):
    """Seed 003's, of other sizes."""

    def __init__(self, rank: int, world_size: int, comm: DistributedCommunicator | None) -> None:
        super().__init__()
        torch.manual_seed(rank)
        self.layer = nn.Linear(WIDTH // world_size, CLASSES)
        self.comm = comm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert self.comm is not None
        x_gathered = AllGatherOperator(self.comm).all_gather(x)
        output = self.layer(x_gathered)
        return ReduceScatterOperator(self.comm).reduce_scatter(output)


class Mixed(nn.Module):
    """Parameters of two types, of which one is used by some ranks alone."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Parameter(torch.ones(2))
        self.of_half = nn.Parameter(torch.ones(2, dtype=torch.float16))
        self.other = nn.Parameter(torch.ones(2))

    def forward(self, *, use_other: bool) -> torch.Tensor:
        total = self.used.sum() + self.of_half.sum()
        return total + self.other.sum() if use_other else total


def made_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Linear(16, CLASSES))


def rows_of(step: int) -> Rows:
    """Return the rows of all ranks together."""
    data = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(step % 2))
    return data, data[:, :CLASSES].argmax(1)


def train(model: nn.Module, rank: int, world_size: int, backward: Callable[[Rows], None]) -> list[float]:
    """Return the loss on all rows before each step; `backward` gets those of a rank."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=RATE), []
    for step in range(STEPS):
        data, target = rows_of(step)
        with torch.no_grad():
            losses.append(functional.cross_entropy(model(data), target).item())
        optimizer.zero_grad()
        backward((data[rank::world_size], target[rank::world_size]))
        optimizer.step()
    return losses


def simply(model: nn.Module, rows: Rows, share: float = 1.0) -> None:
    (share * functional.cross_entropy(model(rows[0]), rows[1])).backward()  # type: ignore[no-untyped-call]


def losses_alone() -> list[float]:
    model = made_model()
    return train(model, 0, 1, lambda rows: simply(model, rows))


def by_ddp(comm: DistributedCommunicator) -> list[float]:
    model = DistributedDataParallel(made_model())
    return train(model, comm.rank, comm.world_size, lambda rows: simply(model, rows))


def by_the_loop(comm: DistributedCommunicator) -> list[float]:
    model, all_reduce_op = made_model(), AllReduceOperator(comm)

    def backward(rows: Rows) -> None:
        simply(model, rows)
        for param in model.parameters():
            if param.grad is not None:
                param.grad = all_reduce_op.all_reduce(param.grad, "mean")

    return train(model, comm.rank, comm.world_size, backward)


def by_hooks(comm: DistributedCommunicator, *, half: bool = False, as_views: bool = False) -> list[float]:
    model = made_model()
    compression = HalfPrecision() if half else None
    sync = GradientSynchronizer(model, comm, bucket_bytes=300, gradients_as_views=as_views, compression=compression)

    def backward(rows: Rows) -> None:
        simply(model, rows)
        sync.wait()

    return train(model, comm.rank, comm.world_size, backward)


def accumulated(comm: DistributedCommunicator) -> list[float]:
    """Compute the rows in two halves, and let the optimizer's step wait."""
    model = made_model()
    sync = GradientSynchronizer(model, comm)

    def backward(rows: Rows) -> None:
        (data, more_data), (target, more_target) = (item.chunk(2) for item in rows)
        with sync.no_sync():
            simply(model, (data, target), 0.5)
        simply(model, (more_data, more_target), 0.5)
        sync.wait()

    return train(model, comm.rank, comm.world_size, backward)


def by_parallel_model(comm: DistributedCommunicator) -> list[float]:
    """Each rank has its own rows, of which it knows some columns, and computes their loss."""
    model = ParallelModel(comm.rank, comm.world_size, comm)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=RATE), []
    for step in range(STEPS):
        data, target = parallel_rows(step, comm.world_size)
        mine = slice(comm.rank * len(data) // comm.world_size, (comm.rank + 1) * len(data) // comm.world_size)
        optimizer.zero_grad()
        # As where it is not the model's first layer: the input has a gradient, too.
        output = model(data[mine].clone().requires_grad_())
        loss = functional.cross_entropy(output, target[mine], reduction="sum") / len(data)
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(AllReduceOperator(comm).all_reduce(loss.detach()).item())
        optimizer.step()
    return losses


def parallel_rows(step: int, world_size: int) -> Rows:
    data, target = rows_of(step)
    return data[:, : WIDTH // world_size], target


def losses_of_a_plain_one(world_size: int) -> list[float]:
    """Train in one process what `by_parallel_model` does: the sum of all ranks' layers."""
    layers = [ParallelModel(rank, world_size, None).layer for rank in range(world_size)]
    optimizer = torch.optim.SGD([param for layer in layers for param in layer.parameters()], lr=RATE)
    losses = []
    for step in range(STEPS):
        data, target = parallel_rows(step, world_size)
        optimizer.zero_grad()
        loss = functional.cross_entropy(torch.stack([layer(data) for layer in layers]).sum(0), target)
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.item())
        optimizer.step()
    return losses


def main(rank: int, world_size: int, place: str) -> None:
    store = dist.FileStore(place, world_size)  # type: ignore[attr-defined]  # it is in no `__all__`
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=60))
    torch.set_num_threads(1)
    comm = DistributedCommunicator(rank, world_size, timeout_s=60)
    found = {
        "ddp": by_ddp(comm),
        "loop": by_the_loop(comm),
        "hooks": by_hooks(comm),
        "views": by_hooks(comm, as_views=True),
        "half": by_hooks(comm, half=True),
        "accumulated": accumulated(comm),
        "parallel": by_parallel_model(comm),
    }
    if rank == 0:
        print(json.dumps(found), flush=True)
    comm.barrier()
    leave()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
