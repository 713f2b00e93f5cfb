"""Trains a classifier of generated samples by collective operators, on CPUs, with any number of ranks on a node.

Three ways to do it: `loop` synchronises each gradient after the backward pass, `hooks` while it still computes, in
buckets, compressed if asked for, and `parallel_model` has each rank hold a layer of which the outputs are added up.
`ddp` is torch's own, to compare with. dttui writes batch and settings from job.yaml into the file of DTTUI_CONFIG.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from dttui_collectives import (
    AllGatherOperator,
    AllReduceOperator,
    Compression,
    DistributedCommunicator,
    GradientSynchronizer,
    HalfPrecision,
    PowerSgd,
    ReduceScatterOperator,
    TopK,
    data_parallel,
    job_compression,
)
from torch import Tensor, nn

TOLD = os.environ.get("DTTUI_CONFIG")
CONFIG: dict[str, Any] = json.loads(Path(TOLD).read_text(encoding="utf-8")) if TOLD else {}
SETTINGS: dict[str, Any] = {
    "way": "hooks",
    "compression": "none",
    "accumulate": 1,
    "steps": 60,
    "learning_rate": 0.2,
    "seed": 1,
} | (CONFIG.get("settings") or {})
LIMIT_S = (CONFIG.get("distributed") or {}).get("timeout_s")
"""How long a rank waits in a collective for the others; without it, as long as the operators do by themselves."""
DIRECTORY = Path(os.environ.get("DTTUI_CHECKPOINT_DIR") or "checkpoints")
BEFORE = os.environ.get("DTTUI_RESUME_FROM")
"""A checkpoint of an attempt before, to go on from where the directory has none."""
CHECKPOINT: dict[str, Any] = CONFIG.get("checkpoint") or {}
KEPT = CHECKPOINT.get("keep") or 3
"""How many checkpoints stay, the newest."""
INTERVAL_S: float = CHECKPOINT.get("interval_s") or 0
"""From one to the next, where the settings do not say it in steps."""
SETTINGS.setdefault("checkpoint_every", None if INTERVAL_S else 30)
FEATURES, CLASSES = 24, 8
COMPRESSIONS: dict[str, Callable[[], Compression | None]] = {
    "none": job_compression,  # What the job says of communication.compression, if anything.
    "fp16": lambda: HalfPrecision(torch.float16),
    "bf16": HalfPrecision,
    "topk": lambda: TopK(0.1),
    "powersgd": lambda: PowerSgd(2),
}


class ParallelModel(nn.Module):
    """A layer of each rank, on the samples of all of them: what comes of it is added up, and each gets its own rows."""

    def __init__(self, comm: DistributedCommunicator) -> None:
        super().__init__()
        self.all_gather_op = AllGatherOperator(comm)
        self.reduce_scatter_op = ReduceScatterOperator(comm)
        torch.manual_seed(SETTINGS["seed"] + comm.rank)  # other weights everywhere
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x_gathered = self.all_gather_op.all_gather(x)
        output = self.layer(x_gathered)
        return self.reduce_scatter_op.reduce_scatter(output)


def samples(rank: int, ranks: int, batch: int, step: int) -> tuple[Tensor, Tensor]:
    """This rank's part of the batch of a step, the same batch on any number of ranks."""
    dice = torch.Generator().manual_seed(SETTINGS["seed"] * 10**9 + step)
    data = torch.randn(batch, FEATURES, generator=dice)
    target = data.reshape(batch, CLASSES, -1).sum(2).argmax(1)
    share = torch.tensor_split(torch.arange(batch), ranks)[rank]  # as a reduce-scatter shares rows out
    return data[share], target[share]


def report(**values: float) -> None:
    """A line for people, and one for dttui."""
    print("  ".join(f"{key} {value:g}" for key, value in values.items()), flush=True)
    if path := os.environ.get("DTTUI_METRICS"):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, json.dumps(values).encode() + b"\n")
        os.close(file)


def resume(comm: DistributedCommunicator, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Have all ranks begin where rank 0 does: at its newest complete checkpoint; return its step."""
    found: list[Any] = [None]
    kept = max(DIRECTORY.glob("*/COMPLETE"), default=Path(BEFORE, "COMPLETE") if BEFORE else None)
    if comm.rank == 0 and kept is not None:
        found = [torch.load(kept.with_name("state.pt"), map_location="cpu", weights_only=True)]
    dist.broadcast_object_list(found)
    if found[0] is None:
        return 0
    parts = found[0]["parts"]
    if len(parts) not in (1, comm.world_size):
        raise SystemExit(
            f"the checkpoint has {len(parts)} parts of a parallel model, and there are {comm.world_size} ranks"
        )
    part = parts[comm.rank % len(parts)]
    model.load_state_dict(part["model"])
    optimizer.load_state_dict(part["optimizer"])
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


def keep(comm: DistributedCommunicator, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Have rank 0 save a checkpoint, and last the file that says that it is whole."""
    own = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    parts: list[Any] | None = [own]
    if isinstance(model, ParallelModel):  # Each rank has another part.
        parts = [None] * comm.world_size if comm.rank == 0 else None
        dist.gather_object(own, parts)
    if comm.rank == 0:
        folder = DIRECTORY / f"step-{step:08}"
        folder.mkdir(parents=True, exist_ok=True)
        torch.save({"parts": parts, "step": step}, folder / "state.pt")
        finish(folder)


def trained_by(comm: DistributedCommunicator) -> tuple[nn.Module, Callable[[], None], Callable[[bool], Any]]:
    """Return the model, what makes its gradients those of all ranks, and what goes around each backward pass."""
    way = SETTINGS["way"]
    if way == "parallel_model":
        return ParallelModel(comm), lambda: None, lambda _is_last: contextlib.nullcontext()
    torch.manual_seed(SETTINGS["seed"])  # the same weights everywhere
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, CLASSES))
    if way == "ddp":
        wrapped = data_parallel(model)
        return wrapped, lambda: None, lambda is_last: contextlib.nullcontext() if is_last else wrapped.no_sync()
    if way == "hooks":
        sync = GradientSynchronizer(model, comm, op="sum", compression=COMPRESSIONS[SETTINGS["compression"]]())
        return model, sync.wait, lambda is_last: contextlib.nullcontext() if is_last else sync.no_sync()
    if way != "loop":
        raise SystemExit(f"there is no way {way!r}: take loop, hooks, parallel_model or ddp")
    all_reduce_op = AllReduceOperator(comm)

    def synchronise() -> None:
        for param in model.parameters():
            if param.grad is not None:
                param.grad = all_reduce_op.all_reduce(param.grad)

    return model, synchronise, lambda _is_last: contextlib.nullcontext()


def is_due(step: int, kept_at: float) -> bool:
    """Whether a checkpoint is to be kept after a step, the last one having been kept at a time; by rank 0's clock."""
    if every := SETTINGS["checkpoint_every"]:
        return bool(step % every == 0 or step == SETTINGS["steps"])
    since = torch.tensor(time.monotonic() - kept_at)
    dist.broadcast(since, 0)
    return bool(since.item() >= INTERVAL_S or step == SETTINGS["steps"])


def main() -> None:
    dist.init_process_group("gloo")  # This small model is in the memory of the CPU, GPUs or not
    rank, ranks = dist.get_rank(), dist.get_world_size()
    comm = DistributedCommunicator(rank, ranks, **({"timeout_s": LIMIT_S} if LIMIT_S else {}))
    batch = CONFIG.get("batch_size") or 8 * ranks
    if batch < ranks * SETTINGS["accumulate"]:
        raise SystemExit(f"a batch of {batch} samples leaves some of the {ranks} ranks without one")
    model, synchronise, around = trained_by(comm)
    optimizer = torch.optim.SGD(model.parameters(), SETTINGS["learning_rate"])
    criterion = nn.CrossEntropyLoss(reduction="sum")
    scale = ranks if SETTINGS["way"] == "ddp" else 1  # Gradients are summed over ranks; DDP takes their mean.
    kept_at = time.monotonic()
    for step in range(resume(comm, model, optimizer) + 1, SETTINGS["steps"] + 1):
        data, target = samples(rank, ranks, batch, step)
        optimizer.zero_grad()
        total = torch.zeros(1)
        turns = list(zip(*(item.chunk(SETTINGS["accumulate"]) for item in (data, target)), strict=True))
        for number, (some, labels) in enumerate(turns, 1):
            with around(number == len(turns)):
                loss = criterion(model(some), labels) / batch
                (loss * scale).backward()
            total += loss.detach()
        synchronise()
        optimizer.step()
        mean = AllReduceOperator(comm).all_reduce(total)
        if rank == 0:
            report(step=step, loss=round(mean.item(), 6))
        if is_due(step, kept_at):
            keep(comm, model, optimizer, step)
            kept_at = time.monotonic()
    comm.barrier()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # not the usual way out: gloo's threads abort a process now and then that takes itself down
