"""Trains a small language model on the bytes of a text by FSDP2, on CPUs or GPUs, with any number of them on a node.

How the model is sharded is in the file that DTTUI_FSDP_CONFIG names; batch, sizes and settings are in DTTUI_CONFIG's.
dttui writes both from job.yaml. The text is the dataset of the job, or this file where there is none.
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
from typing import Any

import torch
import torch.distributed as dist
from recipe import Recipe
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

OF_JOB: dict[str, Any] = {}
"""What the job says, where dttui does not start this, by variable: `dttui init --from` writes it here."""


def read_json(variable: str) -> dict[str, Any]:
    path = os.environ.get(variable)
    found: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8")) if path else OF_JOB.get(variable, {})
    return found


CONFIG, SHARDING = read_json("DTTUI_CONFIG"), read_json("DTTUI_FSDP_CONFIG")
MODEL = {"layers": 2, "hidden_size": 64, "heads": 4, "seq_length": 64} | (CONFIG.get("model") or {})
OWN = {"steps": 60, "seed": 1, "checkpoint_every": None}
SETTINGS = OWN | (CONFIG.get("settings") or {})
RECIPE = Recipe(CONFIG.get("settings") or {}, learning_rate=3e-3, weight_decay=0.01)
"""Learning rate, schedule, regularisation and the rest that all templates call alike; see recipe.py."""
LEFT_OUT = ("mixup", "cutmix", "auto_augment", "mixed_precision")
"""Of these nothing comes: a text is not mixed, and the sharding says in what layers compute."""
CONTEXT, WIDTH = MODEL["seq_length"], MODEL["hidden_size"]


class Block(nn.Module):
    """Attention to what came before, then a layer of neurons."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.neurons = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:2], MODEL["heads"], WIDTH // MODEL["heads"])
        query, key, value = (part.view(shape).transpose(1, 2) for part in self.attention(self.before(x)).chunk(3, -1))
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self._dropped(self.out(seen.transpose(1, 2).flatten(2)))
        y: Tensor = x + self._dropped(self.neurons(self.between(x)))
        return y

    def _dropped(self, x: Tensor) -> Tensor:
        return functional.dropout(x, RECIPE["dropout"], self.training)


class Model(nn.Module):
    """Predicts each next byte; its output is the sum of the losses of all bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(MODEL["layers"]))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, samples: Tensor) -> Tensor:
        x: Tensor = self.bytes(samples[:, :-1]) + self.places(torch.arange(CONTEXT, device=samples.device))
        for block in self.blocks:
            again = SHARDING.get("activation_checkpointing")
            x = checkpoint(block, x, use_reentrant=False) if again else block(x)
        logits = self.head(self.norm(x))
        told = {"reduction": "sum", "label_smoothing": RECIPE["label_smoothing"]}
        return functional.cross_entropy(logits.flatten(0, 1).float(), samples[:, 1:].flatten(), **told)


def shard(model: nn.Module, device: torch.device) -> None:
    """Share out the parameters among the ranks, as DTTUI_FSDP_CONFIG says."""
    sizes = SHARDING.get("mesh") or [-1]
    others = -math.prod(sizes) if -1 in sizes else 1  # -1 stands for as many as there are
    sizes = tuple(dist.get_world_size() // others if size == -1 else size for size in sizes)
    mesh = init_device_mesh(device.type, sizes, mesh_dim_names=tuple(SHARDING.get("mesh_dim_names") or ["shard"]))
    types = {name: value and getattr(torch, value) for name, value in (SHARDING.get("mp_policy") or {}).items()}
    options: dict[str, Any] = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(**types)}
    options["reshard_after_forward"] = SHARDING.get("reshard_after_forward", True)
    offloads = SHARDING.get("cpu_offload") and device.type == "cuda"
    options["offload_policy"] = CPUOffloadPolicy() if offloads else OffloadPolicy()
    wrap, names = SHARDING.get("wrap", "layers"), SHARDING.get("layer_classes") or [Block.__name__]
    for module in reversed([*model.modules()][1:]):  # the innermost first
        size = sum(weight.numel() for weight in module.parameters())
        if (wrap == "layers" and type(module).__name__ in names) or (
            wrap == "size" and size >= SHARDING["min_parameters"] and not isinstance(module, nn.ModuleList)
        ):
            fully_shard(module, **options)
    fully_shard(model, **options)


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
    starts = torch.randint(len(text) - CONTEXT, (batch, 1), generator=dice)[dist.get_rank() :: dist.get_world_size()]
    return text[starts + torch.arange(CONTEXT + 1)]


def report(**values: float) -> None:
    """A line for people, and one for dttui."""
    print("  ".join(f"{key} {value:g}" for key, value in values.items()), flush=True)
    if path := os.environ.get("DTTUI_METRICS"):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, json.dumps(values).encode() + b"\n")
        os.close(file)


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
IS_FULL = SHARDING.get("state_dict") == "full"
"""Whether rank 0 alone keeps all of it; else each rank keeps its part."""
OPTIONS = StateDictOptions(full_state_dict=IS_FULL, cpu_offload=IS_FULL)


def resume(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the newest checkpoint that is complete on all hosts, or on that of rank 0, else BEFORE; return its step."""
    everywhere: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, {mark.parent.name for mark in DIRECTORY.glob("*/COMPLETE")})
    newest = max(everywhere[0] if IS_FULL else set.intersection(*everywhere), default=None)
    if newest is None and BEFORE is None:
        return 0
    folder, size = DIRECTORY / newest if newest else Path(str(BEFORE)), dist.get_world_size()
    if IS_FULL:
        state: list[Any] = [dist.get_rank() == 0 and load(folder / "rank-0.pt")]
        dist.broadcast_object_list(state)
    elif (ranks := load(min(folder.glob("rank-*.pt")))["ranks"]) == size:
        state = [load(folder / f"rank-{dist.get_rank()}.pt")]
    else:
        of_model, of_optimizer = get_state_dict(model, optimizer, options=OPTIONS)
        before = [load(folder / f"rank-{rank}.pt") for rank in range(ranks)]
        state = [share(before, {"model": of_model, "optimizer": of_optimizer})]
    parts = {"model_state_dict": state[0]["model"], "optim_state_dict": state[0]["optimizer"]}
    set_state_dict(model, optimizer, **parts, options=OPTIONS)
    return int(folder.name.partition("-")[2])


def load(path: Path) -> Any:
    """What a rank has kept; its tensors are read from the file when they are needed."""
    if not path.exists():
        raise SystemExit(f"{path} is not here: where the number of ranks changes, all hosts must see all of them")
    return torch.load(path, map_location="cpu", mmap=True)


def share(before: list[Any], now: Any) -> Any:
    """This rank's part of a state that was shared out among another number of ranks; `now` has its form."""
    if isinstance(now, dict):
        return {key: share([part[key] for part in before], value) for key, value in now.items()}
    if not isinstance(now, DTensor):
        return before[0]
    copies = before[0].device_mesh.mesh  # a row of ranks for each copy of the model
    whole = torch.cat([before[rank].to_local() for rank in copies.view(-1, copies.shape[-1])[0].tolist()])
    return distribute_tensor(whole.to(now.device), now.device_mesh, now.placements, src_data_rank=None)


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


def keep(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Save a checkpoint, and last the file that says that it is whole."""
    folder = DIRECTORY / f"step-{step:08}"
    of_model, of_optimizer = get_state_dict(model, optimizer, options=OPTIONS)
    if dist.get_rank() == 0 or not IS_FULL:
        folder.mkdir(parents=True, exist_ok=True)
        kept = {"model": of_model, "optimizer": of_optimizer, "ranks": dist.get_world_size()}
        torch.save(kept, folder / f"rank-{dist.get_rank()}.pt")
    dist.barrier()
    if dist.get_rank() == 0 or (os.environ["LOCAL_RANK"] == "0" and not IS_FULL):
        finish(folder)


def is_due(step: int, kept_at: float, device: torch.device) -> bool:
    """Whether a checkpoint is to be kept after a step, the last one having been kept at a time; by rank 0's clock."""
    if every := SETTINGS["checkpoint_every"]:
        return bool(step % every == 0 or step == SETTINGS["steps"])
    since = torch.tensor(time.monotonic() - kept_at, device=device)
    dist.broadcast(since, 0)
    return bool(since.item() >= INTERVAL_S or step == SETTINGS["steps"])


def main() -> None:
    backend, local_rank = os.environ.get("DTTUI_BACKEND"), int(os.environ["LOCAL_RANK"])
    on_gpu = backend == "nccl" if backend else torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    # What is offloaded is gathered for checkpoints on the CPU.
    limit = timedelta(seconds=LIMIT_S) if LIMIT_S else None
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=limit)
    torch.manual_seed(SETTINGS["seed"])
    model = Model().to(device)
    shard(model, device)
    optimizer = torch.optim.AdamW(model.parameters(), RECIPE["learning_rate"], **RECIPE.decay())
    in_halves = (SHARDING.get("mp_policy") or {}).get("param_dtype") == "float16"
    scaler = RECIPE.scaler(device.type, torch.float16 if in_halves else None)
    RECIPE.tell_unread(OWN, LEFT_OUT)
    text, batch = read_text(), CONFIG.get("batch_size") or 8 * dist.get_world_size()
    if batch < dist.get_world_size():
        raise SystemExit(f"a batch of {batch} samples leaves some of the {dist.get_world_size()} ranks without one")
    kept_at = time.monotonic()
    for step in range(resume(model, optimizer) + 1, SETTINGS["steps"] + 1):
        for group in optimizer.param_groups:
            group["lr"] = RECIPE["learning_rate"] * RECIPE.factor(step - 1, SETTINGS["steps"])
        total = torch.zeros((), device=device)
        for (part,) in RECIPE.parts(batch // dist.get_world_size(), samples(text, batch, step).to(device)):
            loss = model(part) / (batch * CONTEXT)
            # Gradients are averaged over the ranks, whose parts may be unequal.
            scaler.scale(loss * dist.get_world_size()).backward()  # type: ignore[no-untyped-call]  # so in torch
            total += loss.detach()
        scaler.unscale_(optimizer)
        RECIPE.clip(model.parameters())
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            report(step=step, loss=round(total.item(), 6))
        if is_due(step, kept_at, device):
            keep(model, optimizer, step)
            kept_at = time.monotonic()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # not the usual way out: gloo's threads abort a process now and then that takes itself down
