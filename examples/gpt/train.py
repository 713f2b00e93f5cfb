"""Trains a small GPT on the bytes of a text, data parallel, on CPUs or GPUs: see README.md beside it.

The same file runs under plain `python`, under `torchrun` on one or several nodes, and under dttui.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import time
import traceback
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.rendezvous import rendezvous
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

try:  # with the buckets and the compression that the job says, where dttui has started this
    from dttui_collectives import data_parallel
except ImportError:
    data_parallel = DistributedDataParallel  # type: ignore[assignment]  # torch's own takes the same

if TYPE_CHECKING:  # the names by which a type checker in the repository's root knows the files beside this one
    from examples.gpt.checkpoint import load_everywhere, newest_complete, save
    from examples.gpt.data import Samples
    from examples.gpt.model import GPT, Shape
    from examples.gpt.recipe import Recipe
    from examples.gpt.settings import OWN, read_options, refuse
else:
    from checkpoint import load_everywhere, newest_complete, save
    from data import Samples
    from model import GPT, Shape
    from recipe import Recipe
    from settings import OWN, read_options, refuse

STOPPED = 128 + signal.SIGTERM
"""Exit code of a run that was asked to stop, so that nobody takes it for a finished one."""


LEFT_OUT = ("mixup", "cutmix", "auto_augment")
"""Settings of which nothing comes: a text is not mixed."""
OF_RATE = {"warmup_steps", "scheduler", "min_lr"}
"""Settings by one of which the learning rate follows recipe.py, and not the curve that it has here by itself."""


@dataclass(frozen=True)
class Place:
    """Where this process stands among all ranks."""

    rank: int
    world_size: int
    backend: str
    device: torch.device


def join(limit_s: float | None) -> Place:
    """Meet the other ranks. NCCL where every rank has a GPU of its own, else gloo; DTTUI_BACKEND overrules that."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if "RANK" in os.environ:
        store, rank, world_size = next(rendezvous("env://"))
    else:
        store, rank, world_size = dist.HashStore(), 0, 1  # type: ignore[attr-defined]  # not in __all__
    has_gpu = dist.is_nccl_available() and torch.cuda.device_count() > local_rank
    backend = os.environ.get("DTTUI_BACKEND")
    if not backend:  # asked through the store: a choice of each rank alone would not fit where only some have GPUs
        store.set(f"gpu/{rank}", str(int(has_gpu)))
        answers = store.multi_get([f"gpu/{peer}" for peer in range(world_size)])
        backend = "nccl" if all(answer == b"1" for answer in answers) else "gloo"
    if not dist.is_backend_available(backend):
        refuse(f"DTTUI_BACKEND is {backend}, which this torch does not have")
    if backend == "nccl" and not has_gpu:
        refuse(f"DTTUI_BACKEND is nccl, but there is no GPU for local rank {local_rank}")
    device = torch.device("cuda", local_rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    elif "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # the model is too small to gain from more, and ranks often share a host
    limit = timedelta(seconds=limit_s) if limit_s else None
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=limit)
    return Place(dist.get_rank(), dist.get_world_size(), backend, device)


def make_recipe(options: argparse.Namespace) -> Recipe:
    """How the job's settings have it trained; a learning rate of the command line counts before theirs."""
    said = options.settings | ({} if options.lr is None else {"learning_rate": options.lr})
    usual = {"learning_rate": 5e-3, "weight_decay": 0.1, "gradient_clipping": 1.0, "scheduler": "cosine"}
    try:
        recipe = Recipe(said, **usual, warmup_steps=options.steps // 10)
    except SystemExit as error:
        refuse(str(error))
    options.lr = recipe["learning_rate"]
    recipe.values["min_lr"] = recipe.said.get("min_lr", options.lr / 10)
    return recipe


def learning_rate(step: int, options: argparse.Namespace, recipe: Recipe) -> float:
    """As the job says it; else up in the first tenth of the run, then down along a cosine to a tenth."""
    if OF_RATE & recipe.said.keys():
        return float(options.lr * recipe.factor(step - 1, options.steps))
    warm_up = step / max(1, options.steps // 10)
    cosine = 0.55 + 0.45 * math.cos(math.pi * step / options.steps)
    return float(options.lr * min(warm_up, cosine))


class Report:
    """Tells the world how it goes: a line on rank 0, and a line of JSON from every rank in the file DTTUI_METRICS."""

    def __init__(self, options: argparse.Namespace, place: Place, step: int) -> None:
        self.options, self.place, self.step, self.time = options, place, step, time.monotonic()
        path = os.environ.get("DTTUI_METRICS")
        try:
            self.metrics = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if path else None
        except OSError as error:
            refuse(f"DTTUI_METRICS names a file that cannot be written: {error}")

    def is_due(self, step: int) -> bool:
        """Whether it tells of a step."""
        return step in (1, self.options.steps) or step % self.options.log_every == 0

    def __call__(self, step: int, loss: float, rate: float, gradient_norm: float, own_speed: float | None) -> None:
        """`loss` is the mean over all ranks, and the speed that of all together; `own_speed` is this rank's samples."""
        now = time.monotonic()
        tokens = (step - self.step) * self.options.batch_size * self.options.block_size
        speed = tokens / max(now - self.time, 1e-9)
        self.step, self.time = step, now
        if self.place.rank == 0:
            print(f"step {step}/{self.options.steps}  loss {loss:.3f}  {speed / 1000:.1f}k tok/s", flush=True)
        if self.metrics is not None:
            values = {"step": step, "loss": round(loss, 6), "tokens_per_s": round(speed, 1), "learning_rate": rate}
            values |= {} if own_speed is None else {"rank_samples_per_s": round(own_speed, 3)}
            line = json.dumps({**values, "gradient_norm": round(gradient_norm, 6), "rank": self.place.rank})
            os.write(self.metrics, line.encode() + b"\n")  # one write, so that lines of several ranks never mix


def fail(options: argparse.Namespace) -> None:
    """The injected fault: an exit code of its own, or an exception."""
    if options.exit_code is None:
        raise RuntimeError(f"told to fail before step {options.fail_at_step} by --fail-at-step")
    print(f"train.py: told to exit with {options.exit_code} by --exit-code", file=sys.stderr)
    raise SystemExit(options.exit_code)


class Run:
    """One training run of this rank: model, optimizer, data, and the step they have reached."""

    def __init__(self, options: argparse.Namespace, place: Place, samples: Samples, recipe: Recipe) -> None:
        self.options, self.place, self.samples, self.recipe, self.step = options, place, samples, recipe, 0
        self.shape = Shape(options.block_size, options.layers, options.heads, options.width)
        torch.manual_seed(options.seed)
        self.model = GPT(self.shape, recipe["dropout"]).to(place.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), options.lr, betas=(0.9, 0.95), **recipe.decay())
        self.computed_in = recipe.computed_in(options.precision)
        self.scaler = recipe.scaler(place.device.type, self.computed_in)
        names = ("steps", "batch_size", "lr", "data_seed", "sharding")
        self.settings = {name: getattr(options, name) for name in names} | {"text": samples.digest}
        self.resume()
        gpus = [place.device.index] if place.device.type == "cuda" else None
        self.parallel = data_parallel(self.model, device_ids=gpus)
        self.asked_to_stop, self.kept_at = False, time.monotonic()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.ask_to_stop)

    def ask_to_stop(self, *_: object) -> None:
        """As a signal handler: the loop ends after this step, on all ranks."""
        self.asked_to_stop = True

    def resume(self) -> None:
        """Go on from the newest complete checkpoint of the directory, or else from that of an attempt before."""
        directory, newest = self.options.checkpoint_dir, None
        try:
            if directory and self.place.rank == 0:
                directory.mkdir(parents=True, exist_ok=True)
                newest = newest_complete(directory)
                if newest and not self.options.resume:
                    refuse(f"{newest} is of an earlier run: give --resume to go on from it, or another directory")
            before = os.environ.get("DTTUI_RESUME_FROM")
            if before and newest is None and self.place.rank == 0:
                newest = Path(before)
            state = load_everywhere(newest, self.place.device)
        except (OSError, ValueError) as error:
            refuse(f"no checkpoint can be had from {directory}: {error}")
        if state is None:
            return
        if state["shape"] != asdict(self.shape):
            refuse(f"the checkpoint is of another model: {state['shape']}, not {asdict(self.shape)}")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        changed = [name for name, value in self.settings.items() if state["settings"][name] != value]
        if self.place.rank == 0:
            note = f"; changed since: {', '.join(changed)}" if changed else ""
            print(f"resumed after step {self.step}{note}", flush=True)

    def keep(self) -> None:
        """Write a checkpoint, where there is a place for it."""
        if self.options.checkpoint_dir and self.place.rank == 0:
            state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
            state |= {"shape": asdict(self.shape), "settings": self.settings}
            save(self.options.checkpoint_dir, self.step, state, keep=self.options.keep_checkpoints)
            self.kept_at = time.monotonic()

    def is_due(self) -> bool:
        """Whether it is time for a checkpoint, on rank 0, which alone keeps any."""
        if self.options.checkpoint_every:
            return bool(self.step % self.options.checkpoint_every == 0)
        return bool(time.monotonic() - self.kept_at >= self.options.checkpoint_interval)

    def loss_of(self, samples: Tensor) -> Tensor:
        """A share of the mean over the whole batch, not a mean of its own: ranks may hold unequal shares."""
        with torch.autocast(self.place.device.type, self.computed_in, enabled=self.computed_in is not None):
            logits = self.parallel(samples[:, :-1])
        told = {"reduction": "sum", "label_smoothing": self.recipe["label_smoothing"]}
        total = cross_entropy(logits.float().flatten(0, 1), samples[:, 1:].flatten(), **told)
        loss: Tensor = total / (self.options.batch_size * self.options.block_size)
        return loss

    def train(self) -> int:
        """Make the remaining steps; return the exit code."""
        options, place, recipe = self.options, self.place, self.recipe
        report = Report(options, place, self.step)
        first = self.step + 1
        while self.step < options.steps:
            step = self.step + 1
            if step == options.fail_at_step and place.rank == options.fail_rank:
                fail(options)
            began, own_speed = time.monotonic(), None
            batch = self.samples.share(step, place.rank, place.world_size).to(place.device)
            total = torch.zeros((), device=place.device)
            parts = recipe.parts(self.samples.fewest(place.world_size), batch)
            for number, (part,) in enumerate(parts, 1):
                with self.parallel.no_sync() if number < len(parts) else nullcontext():
                    loss = self.loss_of(part)
                    is_last = number == len(parts) and step != first  # The first step loads what the others have.
                    if options.tell_speed and report.is_due(step) and is_last:
                        loss.item()  # Waits for the GPU; the backward pass waits for the other ranks as well.
                        own_speed = len(batch) / (time.monotonic() - began)
                    # DDP divides by the world size again.
                    self.scaler.scale(loss * place.world_size).backward()  # type: ignore[no-untyped-call]  # so in torch
                total += loss.detach()
            totals = torch.stack((total, total.new_tensor(float(self.asked_to_stop))))
            dist.all_reduce(totals)
            mean_loss, stop = totals.tolist()
            if not math.isfinite(mean_loss):
                print(f"train.py: error: the loss is {mean_loss} at step {step}: lower --lr", file=sys.stderr)
                return 1
            self.scaler.unscale_(self.optimizer)
            gradient_norm = clip_grad_norm_(self.model.parameters(), recipe["gradient_clipping"] or math.inf)
            rate = self.optimizer.param_groups[0]["lr"] = learning_rate(step, options, recipe)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
            self.step = step
            if report.is_due(step):
                report(step, mean_loss, rate, float(gradient_norm), own_speed)
            if stop or step == options.steps or self.is_due():
                self.keep()
            if stop and step < options.steps:
                print(f"train.py: asked to stop, stopped after step {step}", file=sys.stderr)
                return STOPPED
        return 0


@record
def main() -> int:
    options = read_options()
    samples = Samples(options)
    options.steps = options.steps or samples.steps(options.epochs)
    recipe = make_recipe(options)
    place = join(options.collective_timeout)
    if options.batch_size < place.world_size:
        refuse(f"--batch-size {options.batch_size} leaves some of the {place.world_size} ranks without a sample")
    if options.shares is not None and len(options.shares) != place.world_size:
        refuse(f"--shares name {len(options.shares)} ranks, and there are {place.world_size}")
    run = Run(options, place, samples, recipe)
    recipe.tell_unread(OWN, LEFT_OUT)
    if place.rank == 0:
        parameters = sum(parameter.numel() for parameter in run.model.parameters())
        print(
            f"world size {place.world_size}, {place.backend} on {place.device}, {parameters:,} parameters", flush=True
        )
    code = run.train()
    if code == 0 and place.rank == 0 and options.sample > 0:
        dice = torch.Generator().manual_seed(options.seed)
        run.model.eval()
        print(run.model.generate(b"\n", options.sample, dice).decode(errors="replace"))
    dist.barrier()
    dist.destroy_process_group()
    return code


if __name__ == "__main__":
    try:
        code = main() or 0
    except SystemExit as request:
        code = request.code if isinstance(request.code, int) else 1
    except Exception:  # noqa: BLE001  # the top of the process: all that is left to do is to say it and leave
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # not the usual way out: gloo's threads abort a process now and then that takes itself down
