"""A rank that saves into a directory of its own by DeepSpeed or Megatron, or loads from where all parts are together.

Usage: python -m tests.frameworks.parts_on_disks deepspeed|megatron save|load DIRECTORY
Prints a JSON object: name of what was trained → hash of what this rank has of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

STEP = 3


def hashed(*tensors: Tensor) -> str:
    return hashlib.sha256(
        b"".join(item.detach().float().contiguous().numpy().tobytes() for item in tensors)
    ).hexdigest()


def by_deepspeed(place: Path, *, saves: bool) -> dict[str, str]:
    """ZeRO 1, where rank 0 alone has the model and each rank its share of the optimizer, and 3, with shares of both."""
    import deepspeed

    deepspeed.init_distributed("gloo")
    found = {}
    for stage in (1, 3):
        torch.manual_seed(stage if saves else 99)
        model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16))
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
            "zero_optimization": {"stage": stage},
        }
        engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
        directory = str(place / f"zero-{stage}")
        if saves:
            for step in range(1, STEP + 1):
                engine.backward(engine(torch.ones(1, 16)).sum())
                engine.step()
                engine.save_checkpoint(directory, f"global_step{step}", client_state={"step": step})
        else:
            assert engine.load_checkpoint(f"{directory}/.dttui-copies/job/joined")[1]["step"] == STEP
        moments = [item for state in engine.optimizer.optimizer.state.values() for item in state.values()]
        with deepspeed.zero.GatheredParameters(list(model.parameters()), enabled=stage == 3):
            found[f"zero-{stage}"] = hashed(*model.parameters(), *filter(torch.is_tensor, moments))
        dist.barrier()
    return found


def by_megatron(place: Path, *, saves: bool) -> dict[str, str]:
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing import ShardedTensor

    # Megatron asks for the GPU, and here is none.
    vars(torch.cuda).update(synchronize=lambda *_: None, current_device=lambda: torch.device("cpu"))
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    rank, count = dist.get_rank(), dist.get_world_size()
    name = f"iter_{STEP:07d}"
    values = torch.full((8, 8), float(rank)) if saves else torch.zeros(8, 8)
    state = {"weight": ShardedTensor.from_rank_offsets("weight", values, (0, rank, count)), "iteration": STEP}
    if saves:
        (place / "megatron" / name).mkdir(parents=True)
        dist_checkpointing.save(state, str(place / "megatron" / name))
        dist.barrier()
        if rank == 0:
            (place / "megatron" / "latest_checkpointed_iteration.txt").write_text(str(STEP))
    else:
        state = dist_checkpointing.load(state, str(place / "megatron/.dttui-copies/job/joined" / name))
        assert state["iteration"] == STEP
    return {"megatron": hashed(values if saves else state["weight"])}


def main() -> None:
    by = {"deepspeed": by_deepspeed, "megatron": by_megatron}[sys.argv[1]]
    print("found", json.dumps(by(Path(sys.argv[3]), saves=sys.argv[2] == "save")), flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
    os._exit(0)
