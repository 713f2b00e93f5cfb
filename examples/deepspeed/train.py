"""Trains a small language model on the bytes of a text by DeepSpeed, in any stage of ZeRO, on CPUs or GPUs.

Batch sizes, optimizer, precision and ZeRO stage are in the file that --deepspeed_config names; dttui writes it from
job.yaml. The text is the dataset of the job, or this file where there is none.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import deepspeed
import torch
from deepspeed import comm as dist
from torch import Tensor, nn
from torch.nn import functional

OF_JOB: dict[str, Any] = {}
"""What the job says, where dttui does not start this: `dttui init --from` writes it here."""
TOLD = os.environ.get("DTTUI_CONFIG")
CONFIG: dict[str, Any] = json.loads(Path(TOLD).read_text(encoding="utf-8")) if TOLD else OF_JOB
MODEL: dict[str, Any] = {"layers": 2, "hidden_size": 64, "heads": 4, "seq_length": 64} | (CONFIG.get("model") or {})
CONTEXT, WIDTH = MODEL["seq_length"], MODEL["hidden_size"]
SETTINGS: dict[str, Any] = {"steps": 100, "seed": 1, "checkpoint_every": None} | (CONFIG.get("settings") or {})
BESIDE = Path(__file__).with_name("ds_config.json")
"""DeepSpeed's own configuration, where no argument names one: `dttui init --from` writes it too."""
CHECKPOINT: dict[str, Any] = CONFIG.get("checkpoint") or {}
KEPT = CHECKPOINT.get("keep") or 3
"""How many checkpoints stay, the newest."""
INTERVAL_S: float = CHECKPOINT.get("interval_s") or 0
"""From one to the next, where the command line does not say it in steps."""
BEFORE = os.environ.get("DTTUI_RESUME_FROM")
"""A checkpoint of an attempt before, to go on from where the directory has none."""


class Block(nn.Module):
    """Attention to what came before, then a layer of neurons."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = MODEL["heads"]
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.neurons = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:2], self.heads, WIDTH // self.heads)
        query, key, value = (part.view(shape).transpose(1, 2) for part in self.attention(self.before(x)).chunk(3, -1))
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        y: Tensor = x + self.neurons(self.between(x))
        return y


class Model(nn.Module):
    """Predicts each next byte; its output is the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(MODEL["layers"])))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, samples: Tensor) -> Tensor:
        x: Tensor = self.bytes(samples[:, :-1]) + self.places(torch.arange(CONTEXT, device=samples.device))
        logits = self.head(self.norm(self.blocks(x)))
        loss: Tensor = functional.cross_entropy(logits.flatten(0, 1).float(), samples[:, 1:].flatten())
        return loss


def read_text() -> Tensor:
    """The bytes of the job's dataset, a file or the files of a directory."""
    source = Path((CONFIG.get("dataset") or {}).get("path", __file__))
    files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
    data = bytearray(b"".join(path.read_bytes() for path in files))
    if len(data) <= CONTEXT:
        raise SystemExit(f"{source} holds {len(data)} bytes, too few for samples of {CONTEXT} and the next one")
    return torch.frombuffer(data, dtype=torch.uint8).long()


def samples(text: Tensor, count: int, seed: int) -> Tensor:
    """So many samples of the text, the same for the same seed."""
    dice = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(text) - CONTEXT, (count, 1), generator=dice)
    return text[starts + torch.arange(CONTEXT + 1)]


def report(**values: float) -> None:
    """A line for people, and one for dttui."""
    print("  ".join(f"{key} {value:g}" for key, value in values.items()), flush=True)
    if path := os.environ.get("DTTUI_METRICS"):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, json.dumps(values).encode() + b"\n")
        os.close(file)


def resume(engine: Any, directory: Path) -> int:
    """Load the newest checkpoint that is complete on all hosts, else BEFORE; return how many steps it had made."""
    everywhere: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, {mark.parent.name for mark in directory.glob("*/COMPLETE")})
    tag = max(set.intersection(*everywhere), default=None)
    if tag is None and BEFORE is None:
        return 0
    folder = directory / tag if tag else Path(str(BEFORE))
    return int(engine.load_checkpoint(str(folder.parent), folder.name)[1]["step"])


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


def keep(engine: Any, directory: Path, step: int) -> None:
    """Save a checkpoint: each rank its part, then each host the file that says that it is whole."""
    tag = f"step-{step:08}"
    engine.save_checkpoint(str(directory), tag, client_state={"step": step})
    dist.barrier()
    if os.environ["LOCAL_RANK"] == "0":
        finish(directory / tag)


def is_due(step: int, kept_at: float, options: argparse.Namespace, device: Any) -> bool:
    """Whether a checkpoint is to be kept after a step, the last one having been kept at a time; by rank 0's clock."""
    if options.checkpoint_every:
        return bool(step % options.checkpoint_every == 0 or step == options.steps)
    since = torch.tensor(time.monotonic() - kept_at, device=device)
    dist.broadcast(since, 0)
    return bool(since.item() >= INTERVAL_S or step == options.steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=SETTINGS["steps"], help="(%(default)s)")
    every = SETTINGS["checkpoint_every"] or (None if INTERVAL_S else 30)
    parser.add_argument("--checkpoint-every", type=int, default=every, help="steps (%(default)s)")
    parser.add_argument(
        "--seed", type=int, default=SETTINGS["seed"], help="of the weights and of the data (%(default)s)"
    )
    options = deepspeed.add_config_arguments(parser).parse_args()
    options.deepspeed_config = options.deepspeed_config or str(BESIDE)
    text = read_text()
    torch.manual_seed(options.seed)
    model = Model()
    if os.environ.get("RANK", "0") == "0":
        print("at its first start on a host DeepSpeed compiles operators, which takes a minute or more", flush=True)
    engine, *_ = deepspeed.initialize(args=options, model=model, model_parameters=model.parameters())
    directory = Path(os.environ.get("DTTUI_CHECKPOINT_DIR") or "checkpoints")
    rank, passes = dist.get_rank(), engine.gradient_accumulation_steps()
    kept_at = time.monotonic()
    for step in range(resume(engine, directory), options.steps):
        losses = []
        for part in range(passes):
            seed = options.seed * 10**9 + (step * passes + part) * dist.get_world_size() + rank
            loss = engine(samples(text, engine.train_micro_batch_size_per_gpu(), seed).to(engine.device))
            engine.backward(loss)
            engine.step()
            losses.append(loss.detach().float())
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean)
        if rank == 0:
            report(step=step + 1, loss=round(mean.item() / dist.get_world_size(), 6), learning_rate=engine.get_lr()[0])
        if is_due(step + 1, kept_at, options, engine.device):
            keep(engine, directory, step + 1)
            kept_at = time.monotonic()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # not the usual way out: gloo's threads abort a process now and then that takes itself down
