"""Trains the example's model by Horovod, or by DDP where torchrun has started it, and prints the losses."""

from __future__ import annotations

import importlib
import json
import os

import horovod.torch as hvd
import torch
from torch import distributed

STEPS = 12
BATCH = 12
train = importlib.import_module("train")  # The example's, which is laid beside this one.


def main() -> None:
    """Train on the same batches from the same weights, whoever averages the gradients."""
    is_horovod = "HOROVOD_RANK" in os.environ
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(3)
    model = train.Model()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    if is_horovod:
        hvd.init()
        assert (hvd.rank(), hvd.size()) == (rank, size)
        assert hvd.local_rank() == int(os.environ["LOCAL_RANK"])
        loss_of = model
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    else:
        distributed.init_process_group("gloo")
        loss_of = torch.nn.parallel.DistributedDataParallel(model)
    text = train.read_text()
    losses = []
    for step in range(STEPS):
        starts = torch.randint(len(text) - 64, (BATCH, 1), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss = loss_of(text[starts[rank::size] + torch.arange(65)])
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if is_horovod:
            mean = hvd.allreduce(mean)
        else:
            distributed.all_reduce(mean)
            mean /= size
        losses.append(mean.item())
    if rank == 0:
        print("losses", json.dumps(losses), flush=True)
    if is_horovod:
        hvd.shutdown()
    else:
        distributed.barrier()
        distributed.destroy_process_group()
        os._exit(0)


main()
