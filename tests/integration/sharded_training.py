"""A training by FSDP2 whose ranks save their shards by torch.distributed.checkpoint, and die once at `DIES_AT`."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

STEPS, EVERY, DIES_AT = 8, 2, 5
UNTIL_LOST = "--until-lost" in sys.argv
"""Whether the first attempt goes on, slowly, until a host is lost, and the next ends soon after that."""
warnings.simplefilter("ignore")


def digest(state: Any) -> str:
    """Return the hash of this rank's shards of what is kept."""
    made = hashlib.sha256()
    for part in ("model", "optimizer"):
        for name, value in sorted(_tensors(state[part], part)):
            made.update(name.encode() + value.numpy().tobytes())
    return made.hexdigest()


def _tensors(value: Any, name: str) -> list[tuple[str, torch.Tensor]]:
    if isinstance(value, dict):
        return [pair for key in value for pair in _tensors(value[key], f"{name}.{key}")]
    if isinstance(value, torch.Tensor):
        return [(name, (value.to_local() if isinstance(value, DTensor) else value).detach())]
    return []


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)

    def state_now(step: int) -> dict[str, Any]:
        of_model, of_optimizer = get_state_dict(model, optimizer)
        return {"model": of_model, "optimizer": of_optimizer, "step": step}

    done = 0
    if before := os.environ.get("DTTUI_RESUME_FROM"):
        state = state_now(0)
        load(state, checkpoint_id=before)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        done = state["step"]
        print("loaded", done, digest(state_now(done)), flush=True)
    is_first = os.environ["DTTUI_ATTEMPT"] == "0"
    last = STEPS if not UNTIL_LOST else done + 4 * EVERY if not is_first else 10**6
    for step in range(done + 1, last + 1):
        time.sleep(0.2 * UNTIL_LOST)
        optimizer.zero_grad()
        loss = model(torch.full((2, 8), float(step))).square().mean()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            with Path(os.environ["DTTUI_METRICS"]).open("a") as lines:
                lines.write(json.dumps({"step": step, "loss": loss.item()}) + "\n")
        if step % EVERY == 0:
            state = state_now(step)
            save(state, checkpoint_id=os.path.join(os.environ["DTTUI_CHECKPOINT_DIR"], f"step-{step}"))
            print("saved", step, digest(state), flush=True)
        if step == DIES_AT and is_first and not UNTIL_LOST:
            dist.barrier()
            if dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
