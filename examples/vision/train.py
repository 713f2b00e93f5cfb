"""Trains a vision transformer on images, data parallel with mixed precision, on CPUs or GPUs, any number on a node.

Precision, sizes, batch and settings are in the file that DTTUI_CONFIG names, which dttui writes from job.yaml. The
images are made on the spot, ten kinds of stripes in noise: put your own in the place of `make_images`.
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

if TYPE_CHECKING:  # the name by which a type checker in the repository's root knows the file beside this one
    from examples.vision.recipe import Recipe
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
MODEL: dict[str, Any] = {"layers": 2, "hidden_size": 64, "heads": 4} | (CONFIG.get("model") or {})
OWN = {"image_size": 16, "patch_size": 4, "classes": 10, "steps": 60, "seed": 1, "checkpoint_every": None}
SETTINGS: dict[str, Any] = OWN | (CONFIG.get("settings") or {})
USUAL = {"learning_rate": 2e-3, "warmup_steps": 10, "weight_decay": 0.01, "mixed_precision": True}
RECIPE = Recipe(CONFIG.get("settings") or {}, **USUAL)
"""Learning rate, schedule, regularisation and the rest that all templates call alike; see recipe.py."""
SHARDING: dict[str, Any] = CONFIG.get("data_sharding") or {}
SEED = SETTINGS["seed"] if SHARDING.get("seed") is None else SHARDING["seed"]
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
SETTINGS["checkpoint_every"] = SETTINGS["checkpoint_every"] or (None if INTERVAL_S else 30)
COMPUTED_IN = RECIPE.computed_in(MODEL.get("precision"))
"""In what the layers compute; weights, their gradients and the optimizer stay in 32 bits."""


class VisionTransformer(nn.Module):
    """Cuts an image into patches, lets them attend to each other, and names its class."""

    def __init__(self) -> None:
        super().__init__()
        width, patch = MODEL["hidden_size"], SETTINGS["patch_size"]
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Parameter(0.02 * torch.randn(1, (SETTINGS["image_size"] // patch) ** 2, width))
        sizes = {"nhead": MODEL["heads"], "dim_feedforward": 4 * width, "dropout": RECIPE["dropout"]}
        layer = nn.TransformerEncoderLayer(width, **sizes, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, MODEL["layers"], enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, SETTINGS["classes"]))

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2) + self.places
        classes: Tensor = self.head(self.layers(patches).mean(1))
        return classes


def make_images(batch: int, step: int) -> tuple[Tensor, Tensor]:
    """This rank's part of the batch of a step: stripes, whose direction is their class, and the share of each class."""
    dice, size = torch.Generator().manual_seed(SEED * 10**9 + step), SETTINGS["image_size"]
    labels = torch.randint(SETTINGS["classes"], (batch,), generator=dice)
    angles = (torch.pi * labels / SETTINGS["classes"]).view(-1, 1, 1)
    starts, noise = torch.rand(batch, 1, 1, generator=dice), torch.randn(batch, 3, size, size, generator=dice)
    places = torch.arange(size) * 1.2
    waves = torch.sin(places[:, None] * angles.sin() + places * angles.cos() + 7 * starts)
    images, shares = RECIPE.mixed(waves[:, None] + 0.3 * noise, labels, SETTINGS["classes"], dice)
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    return images[mine], shares[mine]


def report(**values: float) -> None:
    """A line for people, and one for dttui."""
    print("  ".join(f"{key} {value:g}" for key, value in values.items()), flush=True)
    if path := os.environ.get("DTTUI_METRICS"):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, json.dumps(values).encode() + b"\n")
        os.close(file)


def resume(**parts: Any) -> int:
    """Have all ranks begin where rank 0 does: at its newest complete checkpoint; return its step."""
    found: list[Any] = [None]
    kept = max(DIRECTORY.glob("*/COMPLETE"), default=Path(BEFORE, "COMPLETE") if BEFORE else None)
    if dist.get_rank() == 0 and kept is not None:
        found = [torch.load(kept.with_name("state.pt"), map_location="cpu", weights_only=True)]
    dist.broadcast_object_list(found)
    if found[0] is None:
        return 0
    for name, part in parts.items():
        part.load_state_dict(found[0][name])
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


def keep(step: int, **parts: Any) -> None:
    """Save a checkpoint, and last the file that says that it is whole."""
    folder = DIRECTORY / f"step-{step:08}"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({"step": step} | {name: part.state_dict() for name, part in parts.items()}, folder / "state.pt")
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
    rank, world_size = dist.get_rank(), dist.get_world_size()
    batch = CONFIG.get("batch_size") or 8 * world_size
    if batch < world_size:
        raise SystemExit(f"a batch of {batch} images leaves some of the {world_size} ranks without one")
    torch.manual_seed(SEED)
    model = VisionTransformer().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), RECIPE["learning_rate"], **RECIPE.decay())
    schedule = RECIPE.schedule(optimizer, SETTINGS["steps"])
    scaler = RECIPE.scaler(device.type, COMPUTED_IN)
    RECIPE.tell_unread(OWN)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "scaler": scaler}
    done = resume(**parts)
    parallel = data_parallel(model, device_ids=[device.index] if backend == "nccl" else None)
    kept_at = time.monotonic()
    for step in range(done + 1, SETTINGS["steps"] + 1):
        optimizer.zero_grad()
        total = torch.zeros((), device=device)
        parts_of_step = RECIPE.parts(batch // world_size, *(part.to(device) for part in make_images(batch, step)))
        for number, (images, shares) in enumerate(parts_of_step, 1):
            with parallel.no_sync() if number < len(parts_of_step) else nullcontext():
                with torch.autocast(device.type, COMPUTED_IN, enabled=COMPUTED_IN is not None):
                    classes = parallel(images)
                loss = functional.cross_entropy(classes.float(), shares, reduction="sum") / batch
                # DDP averages over the ranks, whose parts may be unequal.
                scaler.scale(loss * world_size).backward()  # type: ignore[no-untyped-call]  # so in torch
            total += loss.detach()
        scaler.unscale_(optimizer)
        RECIPE.clip(model.parameters())
        scaler.step(optimizer)
        scaler.update()
        rate = float(schedule.get_last_lr()[0])
        schedule.step()
        dist.all_reduce(total)
        if rank == 0:
            report(step=step, loss=round(total.item(), 6), learning_rate=rate)
            if is_due(step, kept_at):
                keep(step, **parts)
                kept_at = time.monotonic()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # not the usual way out: gloo's threads abort a process now and then that takes itself down
