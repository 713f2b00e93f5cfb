"""Trains a small language model on the bytes of a text by Horovod, on CPUs or GPUs.

The text is the dataset of the job, or this file where there is none. The same seed draws the same samples on any number
of ranks, so that the loss does not depend on it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import horovod.torch as hvd
import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:  # the name by which a type checker in the repository's root knows the file beside this one
    from examples.horovod.recipe import Recipe
else:
    from recipe import Recipe

CONTEXT = 64
WIDTH = 96
OF_JOB: dict[str, Any] = {}
"""What the job says, where dttui does not start this: `dttui init --from` writes it here."""
TOLD = os.environ.get("DTTUI_CONFIG")
CONFIG: dict[str, Any] = json.loads(Path(TOLD).read_text(encoding="utf-8")) if TOLD else OF_JOB
SETTINGS: dict[str, Any] = CONFIG.get("settings") or {}
OWN = ("steps", "epochs", "seed", "checkpoint_every")
RECIPE = Recipe(SETTINGS, learning_rate=0.01)
"""Learning rate, schedule, regularisation and the rest that all templates call alike; see recipe.py."""
COMPUTED_IN = RECIPE.computed_in((CONFIG.get("model") or {}).get("precision"))
"""In what the layers compute; weights, their gradients and the optimizer stay in 32 bits."""
LEFT_OUT = ("mixup", "cutmix", "auto_augment", "dropout", "loss_scaling")
"""Of these nothing comes: a text is not mixed, and half precision is bf16 or has its losses unscaled."""
CHECKPOINT: dict[str, Any] = CONFIG.get("checkpoint") or {}
KEPT = CHECKPOINT.get("keep") or 3
"""How many checkpoints stay, the newest."""
INTERVAL_S: float = CHECKPOINT.get("interval_s") or 0
"""From one to the next, where the command line does not say it in steps."""
BEFORE = os.environ.get("DTTUI_RESUME_FROM")
"""A checkpoint of an attempt before, to go on from where the directory has none."""


class Model(nn.Module):
    """Predicts each next byte; its output is the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, WIDTH)
        self.memory = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, samples: Tensor) -> Tensor:
        seen, _ = self.memory(self.bytes(samples[:, :-1]))
        told = {"label_smoothing": RECIPE["label_smoothing"]}
        return functional.cross_entropy(self.head(seen).flatten(0, 1).float(), samples[:, 1:].flatten(), **told)


def read_text() -> Tensor:
    """The bytes of the job's dataset, a file or the files of a directory."""
    source = Path((CONFIG.get("dataset") or {}).get("path", __file__))
    files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
    data = bytearray(b"".join(path.read_bytes() for path in files))
    if len(data) <= CONTEXT:
        raise SystemExit(f"{source} holds {len(data)} bytes, too few for samples of {CONTEXT} and the next one")
    return torch.frombuffer(data, dtype=torch.uint8).long()


def samples(text: Tensor, batch: int, seed: int) -> Tensor:
    """This rank's part of a batch of the text, the same batch for the same seed."""
    dice = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(text) - CONTEXT, (batch, 1), generator=dice)[hvd.rank() :: hvd.size()]
    return text[starts + torch.arange(CONTEXT + 1)]


def report(**values: float) -> None:
    """A line for people, and one for dttui."""
    print("  ".join(f"{key} {value:g}" for key, value in values.items()), flush=True)
    if path := os.environ.get("DTTUI_METRICS"):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, json.dumps(values).encode() + b"\n")
        os.close(file)


def resume(model: nn.Module, optimizer: torch.optim.Optimizer, directory: Path) -> int:
    """Have all ranks begin where rank 0 does: at its newest complete checkpoint; return how many steps it had made."""
    step = 0
    kept = max(directory.glob("*/COMPLETE"), default=Path(BEFORE, "COMPLETE") if BEFORE else None)
    if hvd.rank() == 0 and kept is not None:
        state = torch.load(kept.with_name("state.pt"), map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return int(hvd.broadcast_object(step, root_rank=0))


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


def keep(model: nn.Module, optimizer: torch.optim.Optimizer, directory: Path, step: int) -> None:
    """Save a checkpoint, and last the file that says that it is whole."""
    folder = directory / f"step-{step:08}"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, folder / "state.pt")
    finish(folder)


def is_due(step: int, kept_at: float, options: argparse.Namespace) -> bool:
    """Whether a checkpoint is to be kept after a step, the last one having been kept at a time."""
    if options.checkpoint_every:
        return bool(step % options.checkpoint_every == 0 or step == options.steps)
    return bool(time.monotonic() - kept_at >= INTERVAL_S or step == options.steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=SETTINGS.get("steps", 100), help="(%(default)s)")
    parser.add_argument("--epochs", type=int, default=SETTINGS.get("epochs"), help="times the text, instead of --steps")
    every = SETTINGS.get("checkpoint_every") or (None if INTERVAL_S else 30)
    parser.add_argument("--checkpoint-every", type=int, default=every, help="steps (%(default)s)")
    parser.add_argument("--learning-rate", type=float, default=RECIPE["learning_rate"], help="(%(default)s)")
    drawn = (CONFIG.get("data_sharding") or {}).get("seed")
    seed = SETTINGS.get("seed", 1) if drawn is None else drawn
    parser.add_argument("--seed", type=int, default=seed, help="of the weights and of the data (%(default)s)")
    options = parser.parse_args()
    batch = CONFIG.get("batch_size") or 8 * int(os.environ.get("HOROVOD_SIZE", "1"))
    hvd.init()
    if batch % hvd.size():
        raise SystemExit(f"a batch of {batch} samples cannot be shared out evenly among {hvd.size()} ranks")
    on_gpu = hvd.cuda_built() and torch.cuda.is_available()
    device = torch.device("cuda", hvd.local_rank()) if on_gpu else torch.device("cpu")
    text = read_text()
    if options.epochs and "steps" not in SETTINGS and "--steps" not in " ".join(sys.argv):
        options.steps = max(1, options.epochs * len(text) // (batch * CONTEXT))
    torch.manual_seed(options.seed)
    model = Model().to(device)
    asked = CONFIG.get("distributed") or {}
    sent_as = hvd.Compression.fp16 if asked.get("compression") == "fp16" else hvd.Compression.none
    turns = min(RECIPE["accumulation_steps"], batch // hvd.size())
    # It has a state of its own, which that of Adam below it does not follow.
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), options.learning_rate, **RECIPE.decay()),
        backward_passes_per_step=turns,  # it sends what that many have made
        named_parameters=model.named_parameters(),
        compression=sent_as,
        groups=1 if asked.get("overlap") is False else None,  # One of all gradients, which waits for the last.
    )
    directory = Path(os.environ.get("DTTUI_CHECKPOINT_DIR") or "checkpoints")
    first = resume(model, optimizer, directory)
    RECIPE.tell_unread(OWN, LEFT_OUT)
    kept_at = time.monotonic()
    for step in range(first, options.steps):
        for group in optimizer.param_groups:
            group["lr"] = options.learning_rate * RECIPE.factor(step, options.steps)
        optimizer.zero_grad()
        total = torch.zeros((), device=device)
        own = samples(text, batch, options.seed * 10**9 + step).to(device)
        for (part,) in RECIPE.parts(len(own), own):
            with torch.autocast(device.type, COMPUTED_IN, enabled=COMPUTED_IN is not None):
                loss = model(part) * (len(part) / len(own))
            loss.backward()
            total += loss.detach()
        optimizer.synchronize()
        RECIPE.clip(model.parameters())
        with optimizer.skip_synchronize():
            optimizer.step()
        mean = hvd.allreduce(total)
        if hvd.rank() == 0:
            report(step=step + 1, loss=round(mean.item(), 6))
            if is_due(step + 1, kept_at, options):
                keep(model, optimizer, directory, step + 1)
                kept_at = time.monotonic()
    hvd.shutdown()


if __name__ == "__main__":
    main()
