"""Trains a ResNet on images, data parallel by DistributedDataParallel, on CPUs or GPUs, any number of them on a node.

Batch, workers, shuffling and settings are in the file that DTTUI_CONFIG names, which dttui writes from job.yaml. The
images are made on the spot, ten kinds of stripes in noise: put your own Dataset in the place of Stripes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

if TYPE_CHECKING:  # the name by which a type checker in the repository's root knows the file beside this one
    from examples.resnet.recipe import Recipe
else:
    from recipe import Recipe

try:  # with the buckets and the compression that the job says, where dttui has started this
    from dttui_collectives import data_parallel
except ImportError:
    data_parallel = DistributedDataParallel  # type: ignore[assignment]  # torch's own takes the same

OF_JOB: dict[str, Any] = {}
"""What the job says, where dttui does not start this: `dttui init --from` writes it here."""
TOLD = os.environ.get("DTTUI_CONFIG")
CONFIG: dict[str, Any] = json.loads(Path(TOLD).read_text(encoding="utf-8")) if TOLD else OF_JOB
OWN = {"layers": [1, 1], "width": 8, "image_size": 16, "classes": 10, "images": 960, "epochs": 2, "momentum": 0.9}
SETTINGS: dict[str, Any] = OWN | (CONFIG.get("settings") or {})
RECIPE = Recipe(CONFIG.get("settings") or {}, learning_rate=0.1, weight_decay=1e-4)
"""Learning rate, schedule, regularisation and the rest that all templates call alike; see recipe.py."""
LEFT_OUT = ("dropout",)
"""Of this nothing comes: batches are normalised instead."""
COMPUTED_IN = RECIPE.computed_in((CONFIG.get("model") or {}).get("precision"))
"""In what the layers compute; weights, their gradients and the optimizer stay in 32 bits."""
SHARDING: dict[str, Any] = CONFIG.get("data_sharding") or {}
LIMIT_S = (CONFIG.get("distributed") or {}).get("timeout_s")
"""How long a rank waits in a collective for the others; without it, as long as torch does by itself."""
DIRECTORY = Path(os.environ.get("DTTUI_CHECKPOINT_DIR") or "checkpoints")
BEFORE = os.environ.get("DTTUI_RESUME_FROM")
"""A checkpoint of an attempt before, to go on from where the directory has none."""
CHECKPOINT: dict[str, Any] = CONFIG.get("checkpoint") or {}
KEPT = CHECKPOINT.get("keep") or 3
"""How many checkpoints stay, the newest."""
INTERVAL_S: float = CHECKPOINT.get("interval_s") or 0
"""From one to the next, at least; each is made at the end of an epoch."""


class Stripes(Dataset[tuple[Tensor, int]]):
    """Images of stripes, whose direction is their class; the same ones in every process."""

    def __len__(self) -> int:
        return int(SETTINGS["images"])

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        dice = torch.Generator().manual_seed(index)
        label, size = index % SETTINGS["classes"], SETTINGS["image_size"]
        angle = torch.tensor(torch.pi * label / SETTINGS["classes"])
        places = torch.arange(size) * 1.2
        waves = torch.sin(places[:, None] * angle.sin() + places * angle.cos() + 7 * torch.rand(1, generator=dice))
        return waves.expand(3, size, size) + 0.3 * torch.randn(3, size, size, generator=dice), label


class Bottleneck(nn.Module):
    """Three convolutions, added to what came in."""

    def __init__(self, inner: int, channels: int, stride: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            *(nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU()),
            *(nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU()),
            *(nn.Conv2d(inner, 4 * inner, 1, bias=False), nn.BatchNorm2d(4 * inner)),
        )
        self.shortcut = nn.Sequential()
        if stride > 1 or channels != 4 * inner:
            self.shortcut.append(nn.Conv2d(channels, 4 * inner, 1, stride, bias=False)).append(
                nn.BatchNorm2d(4 * inner)
            )

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.convolutions(x) + self.shortcut(x))


def make_model() -> nn.Module:
    """A ResNet: with layers [3, 4, 6, 3] and width 64, ResNet-50."""
    width, channels = SETTINGS["width"], SETTINGS["width"]
    model = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU())
    if SETTINGS["image_size"] >= 64:
        model.append(nn.MaxPool2d(3, 2, 1))
    for stage, count in enumerate(SETTINGS["layers"]):
        inner = width * 2**stage
        for number in range(count):
            model.append(Bottleneck(inner, channels, 2 if stage and not number else 1))
            channels = 4 * inner
    return model.append(nn.AdaptiveAvgPool2d(1)).append(nn.Flatten()).append(nn.Linear(channels, SETTINGS["classes"]))


def report(**values: float) -> None:
    """A line for people, and one for dttui."""
    print("  ".join(f"{key} {value:g}" for key, value in values.items()), flush=True)
    if path := os.environ.get("DTTUI_METRICS"):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, json.dumps(values).encode() + b"\n")
        os.close(file)


def resume(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Have all ranks begin where rank 0 does: at its newest complete checkpoint; return how many epochs it had made."""
    found: list[Any] = [None]
    kept = max(DIRECTORY.glob("*/COMPLETE"), default=Path(BEFORE, "COMPLETE") if BEFORE else None)
    if dist.get_rank() == 0 and kept is not None:
        found = [torch.load(kept.with_name("state.pt"), map_location="cpu", weights_only=True)]
    dist.broadcast_object_list(found)
    if found[0] is None:
        return 0
    model.load_state_dict(found[0]["model"])
    optimizer.load_state_dict(found[0]["optimizer"])
    return int(found[0]["epoch"])


def finish(folder: Path) -> None:
    """Mark a checkpoint as whole once all of it is on the disk, then remove all such but the newest."""
    for path in (*folder.iterdir(), folder, folder.parent):
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.close(file)
    (folder / "COMPLETE").touch()
    for old in sorted(folder.parent.glob("epoch-*/COMPLETE"))[:-KEPT]:
        old.unlink()
        shutil.rmtree(old.parent)


def keep(model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    """Save a checkpoint, and last the file that says that it is whole."""
    folder = DIRECTORY / f"epoch-{epoch:06}"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, folder / "state.pt")
    finish(folder)


def main() -> None:
    backend, device = os.environ.get("DTTUI_BACKEND", "gloo"), torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=timedelta(seconds=LIMIT_S) if LIMIT_S else None)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    batch = CONFIG.get("batch_size") or 8 * world_size
    if batch % world_size:
        raise SystemExit(f"a batch of {batch} images cannot be shared out evenly among {world_size} ranks")
    torch.manual_seed(SHARDING.get("seed") or 0)
    model = make_model().to(device)
    optimizer = torch.optim.SGD(
        model.parameters(), RECIPE["learning_rate"], momentum=SETTINGS["momentum"], **RECIPE.decay()
    )
    scaler = RECIPE.scaler(device.type, COMPUTED_IN)
    done = resume(model, optimizer)
    parallel = data_parallel(model, device_ids=[device.index] if backend == "nccl" else None)
    images = Stripes()
    is_shuffled = (SHARDING.get("method") or SHARDING.get("strategy")) != "sequential"
    sampler: DistributedSampler[Any] = DistributedSampler(
        images, shuffle=is_shuffled, seed=SHARDING.get("seed") or 0, drop_last=True
    )
    workers = CONFIG.get("num_workers") or 0
    loader = DataLoader(images, batch // world_size, sampler=sampler, num_workers=workers, drop_last=True)
    RECIPE.tell_unread(OWN, LEFT_OUT)
    if not loader:
        raise SystemExit(f"a batch of {batch} images cannot be had of {len(images)}")
    kept_at = time.monotonic()
    steps = SETTINGS["epochs"] * len(loader)
    for epoch in range(done, SETTINGS["epochs"]):
        sampler.set_epoch(epoch)
        for number, (pictures, labels) in enumerate(loader):
            step = epoch * len(loader) + number
            for group in optimizer.param_groups:
                group["lr"] = RECIPE["learning_rate"] * RECIPE.factor(step, steps)
            optimizer.zero_grad()
            dice = torch.Generator().manual_seed(step * world_size + rank)
            mixed, shares = RECIPE.mixed(pictures, labels, SETTINGS["classes"], dice)
            parts = RECIPE.parts(len(labels), mixed.to(device), shares.to(device))
            mean = torch.zeros((), device=device)
            for turn, (images_of, shares_of) in enumerate(parts, 1):
                with parallel.no_sync() if turn < len(parts) else nullcontext():
                    with torch.autocast(device.type, COMPUTED_IN, enabled=COMPUTED_IN is not None):
                        classes = parallel(images_of)
                    loss = functional.cross_entropy(classes.float(), shares_of, reduction="sum") / len(labels)
                    scaler.scale(loss).backward()  # type: ignore[no-untyped-call]  # so in torch
                mean += loss.detach()
            scaler.unscale_(optimizer)
            RECIPE.clip(model.parameters())
            scaler.step(optimizer)
            scaler.update()
            dist.all_reduce(mean)
            if rank == 0:
                report(step=step + 1, epoch=epoch + 1, loss=round(mean.item() / world_size, 6))
        if rank == 0 and (time.monotonic() - kept_at >= INTERVAL_S or epoch + 1 == SETTINGS["epochs"]):
            keep(model, optimizer, epoch + 1)
            kept_at = time.monotonic()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # not the usual way out: gloo's threads abort a process now and then that takes itself down
