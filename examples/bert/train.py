"""Trains a small BERT on the bytes of a text, pipeline parallel by torch.distributed.pipelining, on CPUs or GPUs.

Each rank holds one stage of the layers; with more ranks than stages, each pipeline takes its part of a batch.
Stages, schedule, micro-batches, sizes and settings are in the file that DTTUI_CONFIG names, which dttui writes from
job.yaml. The text is the dataset of the job, or this file where there is none.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn import functional

if TYPE_CHECKING:  # the name by which a type checker in the repository's root knows the file beside this one
    from examples.bert.recipe import Recipe
else:
    from recipe import Recipe

OF_JOB: dict[str, Any] = {}
"""What the job says, where dttui does not start this: `dttui init --from` writes it here."""
TOLD = os.environ.get("DTTUI_CONFIG")
CONFIG: dict[str, Any] = json.loads(Path(TOLD).read_text(encoding="utf-8")) if TOLD else OF_JOB
MODEL: dict[str, Any] = {"layers": 4, "hidden_size": 64, "heads": 4, "seq_length": 64} | (CONFIG.get("model") or {})
OWN = {"steps": 60, "seed": 1, "masked_percent": 15, "checkpoint_every": None}
SETTINGS: dict[str, Any] = OWN | (CONFIG.get("settings") or {})
RECIPE = Recipe(CONFIG.get("settings") or {}, learning_rate=3e-3, weight_decay=0.01)
"""Learning rate, schedule, regularisation and the rest that all templates call alike; see recipe.py."""
LEFT_OUT = ("mixup", "cutmix", "auto_augment", "mixed_precision", "loss_scaling", "accumulation_steps")
"""Of these nothing comes: a text is not mixed, layers compute in 32 bits, and micro-batches are what accumulates."""
STRATEGY: dict[str, Any] = CONFIG.get("strategy") or {}
PIPELINE: dict[str, Any] = STRATEGY.get("pipeline_parallel") or {}
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
KINDS = {"1F1B": Schedule1F1B, "GPipe": ScheduleGPipe}
"""The schedules in which a rank has one stage."""
MASK, NOTHING = 256, -100
"""The token in the place of what is to be guessed, and the target where nothing is."""


class Ends(nn.Module):
    """What only the first stage has, from tokens to vectors, or only the last, from vectors to guesses."""

    def __init__(self, *, is_first: bool) -> None:
        super().__init__()
        width = MODEL["hidden_size"]
        self.tokens = nn.Embedding(257, width) if is_first else None
        self.places = nn.Embedding(MODEL["seq_length"], width) if is_first else None
        self.guess = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 256)) if not is_first else None

    def forward(self, x: Tensor) -> Tensor:
        if self.guess is not None:
            return self.guess(x)  # type: ignore[no-any-return]  # modules are not typed
        assert self.tokens is not None
        assert self.places is not None
        return self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))  # type: ignore[no-any-return]


def make_stage(index: int, stages: int) -> nn.Module:
    """The layers of one stage: as many as of the others, or one more."""
    layers, width = MODEL["layers"], MODEL["hidden_size"]
    stage = nn.Sequential(Ends(is_first=True)) if index == 0 else nn.Sequential()
    for number in range(layers * index // stages, layers * (index + 1) // stages):
        torch.manual_seed(SETTINGS["seed"] + number)
        sizes = {"nhead": MODEL["heads"], "dim_feedforward": 4 * width, "dropout": RECIPE["dropout"]}
        layer = nn.TransformerEncoderLayer(width, **sizes, activation="gelu", batch_first=True, norm_first=True)
        stage.append(layer)
    return stage.append(Ends(is_first=False)) if index == stages - 1 else stage


def read_text() -> Tensor:
    """The bytes of the job's dataset, a file or the files of a directory."""
    source = Path((CONFIG.get("dataset") or {}).get("path", __file__))
    files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
    data = bytearray(b"".join(path.read_bytes() for path in files))
    if len(data) <= MODEL["seq_length"]:
        raise SystemExit(f"{source} holds {len(data)} bytes, too few for samples of {MODEL['seq_length']}")
    return torch.frombuffer(data, dtype=torch.uint8).long()


def masked(text: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """So many samples with some of their bytes masked, and what stood there; the same ones for the same seed."""
    dice, length = torch.Generator().manual_seed(seed), MODEL["seq_length"]
    samples = text[torch.randint(len(text) - length, (count, 1), generator=dice) + torch.arange(length)]
    is_masked = torch.randint(100, samples.shape, generator=dice) < SETTINGS["masked_percent"]
    return samples.masked_fill(is_masked, MASK), samples.masked_fill(~is_masked, NOTHING)


def loss_of(guesses: Tensor, wanted: Tensor) -> Tensor:
    told = {"ignore_index": NOTHING, "label_smoothing": RECIPE["label_smoothing"]}
    return functional.cross_entropy(guesses.flatten(0, 1).float(), wanted.flatten(), **told)


def clip(model: nn.Module, pipeline: dist.ProcessGroup) -> None:
    """Keep the norm of the gradients of all stages below what the job says."""
    if not RECIPE["gradient_clipping"]:
        return
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    squares = torch.stack([gradient.square().sum() for gradient in gradients]).sum()
    dist.all_reduce(squares, group=pipeline)
    for gradient in gradients:
        gradient *= (RECIPE["gradient_clipping"] / (squares.sqrt() + 1e-6)).clamp(max=1.0)


def report(**values: float) -> None:
    """A line for people, and one for dttui."""
    print("  ".join(f"{key} {value:g}" for key, value in values.items()), flush=True)
    if path := os.environ.get("DTTUI_METRICS"):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, json.dumps(values).encode() + b"\n")
        os.close(file)


def newest() -> Path | None:
    """The newest checkpoint that is complete on all hosts, else BEFORE."""
    everywhere: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, {mark.parent.name for mark in DIRECTORY.glob("*/COMPLETE")})
    name: str | None = max(set.intersection(*everywhere), default=None)
    if name:
        return DIRECTORY / name
    return Path(BEFORE) if BEFORE else None


def finish(folder: Path) -> None:
    """Mark a checkpoint as whole once all of it is on the disk, then remove all such but the newest.

    Several hosts may do so at once, where they share the directory.
    """
    for path in (*folder.iterdir(), folder, folder.parent):
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.close(file)
    (folder / "COMPLETE").touch()
    for old in sorted(folder.parent.glob("step-*/COMPLETE"))[:-KEPT]:
        old.unlink(missing_ok=True)
        shutil.rmtree(old.parent, ignore_errors=True)


def keep(step: int, state: dict[str, Any]) -> None:
    """Save a checkpoint: each rank its part, then each host the file that says that it is whole."""
    folder = DIRECTORY / f"step-{step:08}"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({**state, "step": step}, folder / f"rank-{dist.get_rank()}.pt")
    dist.barrier()
    if os.environ["LOCAL_RANK"] == "0":
        finish(folder)


def is_due(step: int, kept_at: float, device: torch.device) -> bool:
    """Whether a checkpoint is to be kept after a step, the last one having been kept at a time; by rank 0's clock."""
    if every := SETTINGS["checkpoint_every"]:
        return bool(step % every == 0 or step == SETTINGS["steps"])
    since = torch.tensor(time.monotonic() - kept_at, device=device)
    dist.broadcast(since, 0)
    return bool(since.item() >= INTERVAL_S or step == SETTINGS["steps"])


def main() -> None:
    backend, device = os.environ.get("DTTUI_BACKEND", "gloo"), torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    kind = PIPELINE.get("schedule") or "1F1B"
    if kind not in KINDS:
        raise SystemExit(f"{kind} needs several stages a rank, which this script has not: {' or '.join(KINDS)}")
    dist.init_process_group(backend, timeout=timedelta(seconds=LIMIT_S) if LIMIT_S else None)
    world_size = dist.get_world_size()
    given = (STRATEGY, STRATEGY.get("model_parallel") or {}, PIPELINE)
    degrees = (of.get(key) for of in given for key in ("pipeline_parallel_size", "pipeline_stages"))
    stages = next(filter(None, degrees), world_size)
    if world_size % stages:
        raise SystemExit(f"{world_size} ranks make no whole number of pipelines of {stages} stages")
    pipelines = world_size // stages
    mesh = init_device_mesh(device.type, (pipelines, stages), mesh_dim_names=("data", "pipeline"))
    stage, replicas = mesh.get_local_rank("pipeline"), mesh.get_group("data")
    batch = CONFIG.get("batch_size") or 16 * pipelines
    micro = PIPELINE.get("micro_batch_size") or math.gcd(batch // pipelines, 4)
    if batch % (pipelines * micro):
        raise SystemExit(f"{batch} samples make no whole micro-batches of {micro} for each pipeline")
    count = batch // pipelines
    torch.manual_seed(SETTINGS["seed"])
    model = make_stage(stage, stages).to(device)
    part = PipelineStage(model, stage, stages, device, group=mesh.get_group("pipeline"))
    schedule = KINDS[kind](part, count // micro, loss_fn=loss_of)
    optimizer, start = torch.optim.AdamW(model.parameters(), RECIPE["learning_rate"], **RECIPE.decay()), 0
    RECIPE.tell_unread(OWN, LEFT_OUT)
    if found := newest():
        state = torch.load(found / f"rank-{dist.get_rank()}.pt", map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    text = read_text()
    kept_at = time.monotonic()
    for step in range(start + 1, SETTINGS["steps"] + 1):
        optimizer.zero_grad()
        seed = SETTINGS["seed"] * 10**9 + step * 10**4 + mesh.get_local_rank("data")
        samples, wanted = (part.to(device) for part in masked(text, count, seed))
        losses: list[Tensor] = []
        inputs = (samples,) if stage == 0 else ()
        if stage == stages - 1:
            schedule.step(*inputs, target=wanted, losses=losses)
        else:
            schedule.step(*inputs)
        for gradient in (weight.grad for weight in model.parameters() if weight.grad is not None):
            dist.all_reduce(gradient, group=replicas)
            gradient /= pipelines
        clip(model, mesh.get_group("pipeline"))
        for group in optimizer.param_groups:
            group["lr"] = RECIPE["learning_rate"] * RECIPE.factor(step - 1, SETTINGS["steps"])
        optimizer.step()
        if losses:
            mean = torch.stack(losses).mean().detach()
            dist.all_reduce(mean, group=replicas)
            if mesh.get_local_rank("data") == 0:
                report(step=step, loss=round(mean.item() / pipelines, 6), rank=dist.get_rank())
        if is_due(step, kept_at, device):
            keep(step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
            kept_at = time.monotonic()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # not the usual way out: gloo's threads abort a process now and then that takes itself down
