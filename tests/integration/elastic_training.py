"""A small model on data of its own, trained by any number of ranks; goes on from the newest checkpoint of all nodes.

usage: elastic_training.py STEPS PAUSE_S [FILE]

With a file it ends only once that is there on the host of some rank.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

CHECKPOINT_EVERY = 5
LEARNING_RATE = 0.01


def main() -> None:
    # Here: tests import this for what it says of itself, and torch takes two seconds of each of their processes.
    import torch
    import torch.distributed as dist

    steps, pause_s = int(sys.argv[1]), float(sys.argv[2])
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    print(f"local rank {os.environ['LOCAL_RANK']} is rank {rank} of {size}", flush=True)
    limit_s = json.loads(Path(os.environ["DTTUI_CONFIG"]).read_text())["distributed"]["timeout_s"]
    dist.init_process_group("gloo", timeout=timedelta(seconds=limit_s or 1800))
    torch.manual_seed(1)
    model = torch.nn.Linear(8, 1)
    wanted = torch.arange(8.0).unsqueeze(1)
    kept = Path(os.environ["DTTUI_CHECKPOINT_DIR"])
    # Every node has its own, and one that was stopped a little earlier does not have the newest.
    last = torch.tensor(max((int(path.stem) for path in kept.glob("*.pt")), default=0))
    dist.all_reduce(last, dist.ReduceOp.MIN)
    newest = kept / f"{last}.pt"
    if not last and (before := os.environ.get("DTTUI_RESUME_FROM")):
        newest = Path(before)
        last = torch.tensor(int(newest.stem))
    if last:
        model.load_state_dict(torch.load(newest))
        print(f"goes on after step {last}", flush=True)
    for step in range(int(last) + 1, steps + 1):
        inputs = torch.randn(32, 8, generator=torch.Generator().manual_seed(step * 100 + rank))
        loss = torch.nn.functional.mse_loss(model(inputs), inputs @ wanted)
        # By hand what DDP and an optimizer do: these import torch's compiler, as much again as torch itself.
        for weights, gradient in zip(model.parameters(), torch.autograd.grad(loss, [*model.parameters()]), strict=True):
            dist.all_reduce(gradient)
            weights.data -= LEARNING_RATE * gradient / size
        if rank == 0:
            report(step, loss.item())
        if os.environ["LOCAL_RANK"] == "0" and step % CHECKPOINT_EVERY == 0:
            torch.save(model.state_dict(), kept / f"{rank}.new")
            (kept / f"{rank}.new").rename(kept / f"{step}.pt")
        time.sleep(pause_s)
    over = torch.tensor(len(sys.argv) < 4)
    while not over:
        time.sleep(0.1)
        told = torch.tensor(int(os.path.exists(sys.argv[3])))
        dist.all_reduce(told, dist.ReduceOp.MAX)
        over = told > 0
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)


def report(step: int, loss: float) -> None:
    with open(os.environ["DTTUI_METRICS"], "ab", buffering=0) as stream:
        stream.write(json.dumps({"step": step, "loss": loss, "rank": 0}).encode() + b"\n")


if __name__ == "__main__":
    main()
