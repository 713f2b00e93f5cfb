"""Saves some iterations by Megatron's own checkpointing, and names the last one as Megatron-LM does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing import ShardedTensor

from tests.checkpoints.recorder import mark, wait_to_be_watched


def main() -> None:
    # Megatron asks for the GPU, and here is none.
    vars(torch.cuda).update(synchronize=lambda *_: None, current_device=lambda: torch.device("cpu"))
    place = Path(sys.argv[1])
    wait_to_be_watched(place)
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    rank, count = dist.get_rank(), dist.get_world_size()
    for iteration in range(9, 9 + int(sys.argv[2])):
        directory = place / f"iter_{iteration:07d}"
        if rank == 0:
            directory.mkdir()
        dist.barrier()
        state = {
            "weight": ShardedTensor.from_rank_offsets("weight", torch.full((8, 8), float(iteration)), (0, rank, count)),
            "iteration": iteration,
        }
        dist_checkpointing.save(state, str(directory))
        dist.barrier()
        if rank == 0:
            # As megatron/training/checkpointing.py does once the checkpoint is finalised.
            with open(place / "latest_checkpointed_iteration.txt", "w") as tracker:
                tracker.write(str(iteration))
            mark(place, str(iteration))
        dist.barrier()
    wanted = {"weight": ShardedTensor.from_rank_offsets("weight", torch.zeros(8, 8), (0, rank, count))}
    loaded = dist_checkpointing.load(wanted, str(directory))
    assert bool((loaded["weight"] == iteration).all())
    dist.barrier()
    print("END", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    os._exit(0)
