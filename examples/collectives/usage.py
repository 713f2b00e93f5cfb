"""The operators in one process, as one reads of them: `python usage.py`. Needs dttui and torch, and no cluster.

Each of four ranks has an operator of its own; a result is there once the last of them has called. Where a rank needs
its result to go on, as in `train_step`, each is in a thread of its own, as it would be a process in a job.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from dttui_collectives import (
    AllGatherOperator,
    AllReduceOperator,
    BroadcastOperator,
    CommunicationBuffer,
    GatherOperator,
    ReduceScatterOperator,
    ScatterOperator,
    batch_all_reduce,
    create_ring_topology,
    monitor_communication,
    safe_all_reduce,
)

world_size = 4
communicators = create_ring_topology(world_size)


def all_reduce() -> None:
    all_reduce_ops = [AllReduceOperator(comm) for comm in communicators]
    gradients = [torch.randn(1000) for _ in range(world_size)]
    synchronized_grads = [op.all_reduce(gradients[i]) for i, op in enumerate(all_reduce_ops)]
    expected = torch.stack(gradients).sum(0)
    print("all-reduce: all have the sum:", all(torch.allclose(g, expected, atol=1e-5) for g in synchronized_grads))


def broadcast() -> None:
    broadcast_ops = [BroadcastOperator(comm) for comm in communicators]
    params = torch.randn(1000)
    broadcast_data = [params if i == 0 else torch.zeros(1000) for i in range(world_size)]
    broadcasted_params = [op.broadcast(broadcast_data[i], root_rank=0) for i, op in enumerate(broadcast_ops)]
    print("broadcast: all have the root's:", all(torch.equal(p, params) for p in broadcasted_params))


def all_gather() -> None:
    all_gather_ops = [AllGatherOperator(comm) for comm in communicators]
    local_stats = [torch.randn(100) for _ in range(world_size)]
    global_stats = [op.all_gather(local_stats[i]) for i, op in enumerate(all_gather_ops)]
    print("all-gather: all have all:", all(torch.equal(s, torch.cat(local_stats)) for s in global_stats))


def reduce_scatter() -> None:
    reduce_scatter_ops = [ReduceScatterOperator(comm) for comm in communicators]
    full_data = [torch.randn(4000) for _ in range(world_size)]
    scattered_results = [op.reduce_scatter(full_data[i]) for i, op in enumerate(reduce_scatter_ops)]
    together = torch.cat([*scattered_results])
    print("reduce-scatter: parts of the sum:", torch.allclose(together, torch.stack(full_data).sum(0), atol=1e-5))


def gather() -> None:
    gather_ops = [GatherOperator(comm) for comm in communicators]
    losses = [torch.full((1,), float(rank)) for rank in range(world_size)]
    gathered = [op.gather(losses[i], root_rank=0) for i, op in enumerate(gather_ops)]
    print("gather: the root has all, the others nothing:", [len(part) for part in gathered] == [world_size, 0, 0, 0])


def scatter() -> None:
    scatter_ops = [ScatterOperator(comm) for comm in communicators]
    batch = torch.randn(4 * world_size, 10)
    shares = [op.scatter(batch if i == 0 else torch.empty(0), root_rank=0) for i, op in enumerate(scatter_ops)]
    print("scatter: each has its rows:", torch.equal(torch.cat([*shares]), batch))


def send_and_recv() -> None:
    first, second = communicators[:2]
    awaited = second.irecv(0, torch.Size([3]), torch.float32, tag=1)
    first.send(torch.ones(3), dst_rank=1)
    first.isend(torch.full((3,), 2.0), dst_rank=1, tag=1)
    received = second.recv(0, torch.Size([3]), torch.float32)
    for comm in communicators:
        comm.barrier()
    print("send and recv:", received.tolist(), "and by a handle", awaited.wait().tolist())


def train_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    data_loader: Iterable[tuple[torch.Tensor, torch.Tensor]],
    all_reduce_op: AllReduceOperator,
) -> None:
    model.train()
    for data, target in data_loader:
        output = model(data)
        loss = F.cross_entropy(output, target)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's stubs
        for param in model.parameters():
            if param.grad is not None:
                param.grad = all_reduce_op.all_reduce(param.grad, op="mean")
        optimizer.step()


def data_parallel() -> None:
    torch.manual_seed(1)
    alone = torch.nn.Linear(10, 3)
    models = [torch.nn.Linear(10, 3) for _ in range(world_size)]
    for model in models:
        model.load_state_dict(alone.state_dict())
    batches = [(torch.randn(8 * world_size, 10), torch.randint(0, 3, (8 * world_size,))) for _ in range(5)]
    shares = [[(data[i::world_size], target[i::world_size]) for data, target in batches] for i in range(world_size)]
    ranks = [
        threading.Thread(
            target=train_step,
            args=[model, torch.optim.SGD(model.parameters(), lr=0.1), shares[comm.rank], AllReduceOperator(comm)],
        )
        for model, comm in zip(models, create_ring_topology(world_size, threads=True), strict=True)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    (only_one,) = create_ring_topology(1)
    train_step(alone, torch.optim.SGD(alone.parameters(), lr=0.1), batches, AllReduceOperator(only_one))
    same = [torch.allclose(model.weight, alone.weight, atol=1e-6) for model in models]
    print("train_step: all ranks learn what one process does:", all(same))


def each_call_logged() -> None:
    logger = logging.getLogger("dttui.collectives")
    logger.setLevel(logging.DEBUG)  # or of all there is: logging.basicConfig(level=logging.DEBUG)
    for comm in communicators:
        AllReduceOperator(comm).all_reduce(torch.ones(1000))
    logger.setLevel(logging.INFO)


def faster_and_safer() -> None:
    all_reduce_ops = [AllReduceOperator(comm) for comm in communicators]
    small = [torch.ones(3), torch.ones(2, 2)]
    results = [batch_all_reduce(small, op) for op in all_reduce_ops]
    print("batched:", [item.sum().item() for item in results[0]])
    buffer = CommunicationBuffer(1000)
    print("buffer:", buffer.get_buffer(10).shape[0], "of", len(buffer.buffer))
    safe = [safe_all_reduce(torch.ones(1), op, timeout=30) for op in all_reduce_ops]
    print("in time:", safe[0].item())
    monitored = [monitor_communication(op.all_reduce)(torch.ones(1000)) for op in all_reduce_ops]
    print("watched:", monitored[0].sum().item())
    for row in all_reduce_ops[0].benchmark([(1000,), (10000,), (100000,)], num_trials=10):
        bandwidth = row.bus_bandwidth / 1e9
        print(f"{row.shape[0]:>7} elements: {row.seconds * 1e6:.0f} µs, bus bandwidth {bandwidth:.2f} GB/s")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s %(levelname)s: %(message)s")
    collectives = (all_reduce, broadcast, all_gather, reduce_scatter, gather, scatter, send_and_recv)
    for example in (*collectives, data_parallel, each_call_logged, faster_and_safer):
        example()
