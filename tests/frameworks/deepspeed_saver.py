"""A rank that trains by ZeRO 2 and saves some steps by DeepSpeed itself; then all go on from what `latest` names."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist

from tests.checkpoints.recorder import mark, wait_to_be_watched

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": int(sys.argv[3])},
}


def main() -> None:
    root = Path(sys.argv[1])
    wait_to_be_watched(root)
    deepspeed.init_distributed("gloo")
    torch.manual_seed(1)
    model = torch.nn.Linear(16, 16)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    for step in range(1, int(sys.argv[2]) + 1):
        engine.backward(engine(torch.ones(1, 16)).sum())
        engine.step()
        engine.save_checkpoint(sys.argv[1], tag=f"global_step{step}", client_state={"step": step})
        if dist.get_rank() == 0:
            mark(root, str(step))
        dist.barrier()
    assert engine.load_checkpoint(sys.argv[1])[1]["step"] == int(sys.argv[2])
    dist.barrier()
    print("END", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    os._exit(0)
