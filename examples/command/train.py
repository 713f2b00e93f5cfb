"""Trains a small language model on the bytes of a text with nothing but a process group, on CPUs or GPUs.

Every rank finds its place from RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and gradients are summed by
hand: this is all there is to data parallelism. Batch and settings are in the file that DTTUI_CONFIG names, which dttui
writes from job.yaml. The text is the dataset of the job, or this file where there is none.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

TOLD = os.environ.get("DTTUI_CONFIG")
CONFIG: dict[str, Any] = json.loads(Path(TOLD).read_text(encoding="utf-8")) if TOLD else {}
SETTINGS: dict[str, Any] = {"steps": 60, "learning_rate": 0.01, "seed": 1} | (CONFIG.get("settings") or {})
LIMIT_S = (CONFIG.get("distributed") or {}).get("timeout_s")
"""How long a rank waits in a collective for the others; without it, as long as torch does by itself."""
DIRECTORY = Path(os.environ.get("DTTUI_CHECKPOINT_DIR") or "checkpoints")
BEFORE = os.environ.get("DTTUI_RESUME_FROM")
"""A checkpoint of an attempt before, to go on from where the directory has none."""
CHECKPOINT: dict[str, Any] = CONFIG.get("checkpoint") or {}
KEPT = CHECKPOINT.get("keep") or 3
"""How many checkpoints stay, the newest."""
INTERVAL_S: float = CHECKPOINT.get("interval_s") or 0
"""From one to the next, where the settings do not say it in steps."""
SETTINGS.setdefault("checkpoint_every", None if INTERVAL_S else 30)
RANK, WORLD_SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
CONTEXT = 64


class Model(nn.Module):
    """Predicts each next byte; its output is the sum of the losses of all bytes."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.memory = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 256)

    def forward(self, samples: Tensor) -> Tensor:
        seen, _ = self.memory(self.bytes(samples[:, :-1]))
        return functional.cross_entropy(self.head(seen).flatten(0, 1), samples[:, 1:].flatten(), reduction="sum")


def read_text() -> Tensor:
    """The bytes of the job's dataset, a file or the files of a directory."""
    source = Path((CONFIG.get("dataset") or {}).get("path", __file__))
    files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
    data = bytearray(b"".join(path.read_bytes() for path in files))
    if len(data) <= CONTEXT:
        raise SystemExit(f"{source} holds {len(data)} bytes, too few for samples of {CONTEXT} and the next one")
    return torch.frombuffer(data, dtype=torch.uint8).long()


def samples(text: Tensor, batch: int, step: int) -> Tensor:
    """This rank's part of the batch of a step, the same batch on any number of ranks."""
    dice = torch.Generator().manual_seed(SETTINGS["seed"] * 10**9 + step)
    starts = torch.randint(len(text) - CONTEXT, (batch, 1), generator=dice)[RANK::WORLD_SIZE]
    return text[starts + torch.arange(CONTEXT + 1)]


def report(**values: float) -> None:
    """A line for people, and one for dttui."""
    print("  ".join(f"{key} {value:g}" for key, value in values.items()), flush=True)
    if path := os.environ.get("DTTUI_METRICS"):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, json.dumps(values).encode() + b"\n")
        os.close(file)


def resume(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Have all ranks begin where rank 0 does: at its newest complete checkpoint; return its step."""
    found: list[Any] = [None]
    kept = max(DIRECTORY.glob("*/COMPLETE"), default=Path(BEFORE, "COMPLETE") if BEFORE else None)
    if RANK == 0 and kept is not None:
        found = [torch.load(kept.with_name("state.pt"), map_location="cpu", weights_only=True)]
    dist.broadcast_object_list(found)
    if found[0] is None:
        return 0
    model.load_state_dict(found[0]["model"])
    optimizer.load_state_dict(found[0]["optimizer"])
    return int(found[0]["step"])


def finish(folder: Path) -> None:
    """Mark a checkpoint as whole once all of it is on the disk, then remove all such but the newest."""
    for path in (*folder.iterdir(), folder, folder.parent):
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.close(file)
    (folder / "COMPLETE").touch()
    for old in sorted(folder.parent.glob("step-*/COMPLETE"))[:-KEPT]:
        old.unlink()
        shutil.rmtree(old.parent)


def keep(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Save a checkpoint, and last the file that says that it is whole."""
    folder = DIRECTORY / f"step-{step:08}"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, folder / "state.pt")
    finish(folder)


def is_due(step: int, kept_at: float) -> bool:
    """Whether a checkpoint is to be kept after a step, the last one having been kept at a time."""
    if every := SETTINGS["checkpoint_every"]:
        return bool(step % every == 0 or step == SETTINGS["steps"])
    return bool(time.monotonic() - kept_at >= INTERVAL_S or step == SETTINGS["steps"])


def main() -> None:
    backend, device = os.environ.get("DTTUI_BACKEND", "gloo"), torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=timedelta(seconds=LIMIT_S) if LIMIT_S else None)
    text, batch = read_text(), CONFIG.get("batch_size") or 8 * WORLD_SIZE
    if batch < WORLD_SIZE:
        raise SystemExit(f"a batch of {batch} samples leaves some of the {WORLD_SIZE} ranks without one")
    torch.manual_seed(SETTINGS["seed"])  # the same weights everywhere
    model = Model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), SETTINGS["learning_rate"])
    kept_at = time.monotonic()
    for step in range(resume(model, optimizer) + 1, SETTINGS["steps"] + 1):
        optimizer.zero_grad()
        loss = model(samples(text, batch, step).to(device)) / (batch * CONTEXT)
        loss.backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad)
        optimizer.step()
        dist.all_reduce(loss.detach())
        if RANK == 0:
            report(step=step, loss=round(loss.item(), 6))
            if is_due(step, kept_at):
                keep(model, optimizer, step)
                kept_at = time.monotonic()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # not the usual way out: gloo's threads abort a process now and then that takes itself down
