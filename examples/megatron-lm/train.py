"""Trains a small GPT of megatron-core on the bytes of a text: tensor, pipeline and data parallel, on CPUs or GPUs.

Degrees, batches and sizes come as Megatron-LM's own arguments; dttui writes them from job.yaml. The text is the dataset
of the job, or this file where there is none.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state as place
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel, gpt_layer_specs
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import random
from megatron.core.transformer import TransformerConfig
from torch import Tensor
from torch.overrides import TorchFunctionMode

OF_JOB: dict[str, Any] = {}
"""What the job says, where dttui does not start this: `dttui init --from` writes it here."""
TOLD = os.environ.get("DTTUI_CONFIG")
CONFIG: dict[str, Any] = json.loads(Path(TOLD).read_text(encoding="utf-8")) if TOLD else OF_JOB
BESIDE = Path(__file__).with_name("megatron_args.txt")
"""Arguments, one a line, where dttui does not start this and give them: `dttui init --from` writes it."""
CHECKPOINT: dict[str, Any] = CONFIG.get("checkpoint") or {}
KEPT = CHECKPOINT.get("keep") or 3
"""How many checkpoints stay, the newest."""
INTERVAL_S: float = CHECKPOINT.get("interval_s") or 0
"""From one to the next, where that comes before so many iterations."""
BEFORE = os.environ.get("DTTUI_RESUME_FROM")
"""A checkpoint of an attempt before, to go on from where the directory has none."""


class OnCpu(TorchFunctionMode):
    """Makes what megatron-core asks of CUDA by name out of the CPU instead."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if "cuda" in str(kwargs.get("device")):
            kwargs = {**kwargs, "device": "cpu"}
        return function(*args, **kwargs)

    def __init__(self) -> None:
        super().__init__()
        torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment,return-value]  # goes into device=
        torch.cuda.synchronize = lambda device=None: None
        random.CudaRNGStatesTracker.fork = lambda *_: nullcontext()


def read_options() -> argparse.Namespace:
    """The arguments, by Megatron-LM's names; those that mean nothing to this script are left alone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    numbers = {"tensor-model-parallel-size": 1, "pipeline-model-parallel-size": 1, "micro-batch-size": 4}
    numbers |= {"global-batch-size": 16, "num-layers": 2, "hidden-size": 64, "num-attention-heads": 4}
    numbers |= {"seq-length": 64, "train-iters": 60, "save-interval": 30, "seed": 1, "distributed-timeout-minutes": 10}
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value, help="(%(default)s)")
    for name in ("sequence-parallel", "bf16", "overlap-grad-reduce", "grad-reduce-in-bf16"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--ddp-bucket-size", type=int, help="gradients that are reduced together, where that overlaps")
    parser.add_argument("--ddp-num-buckets", type=int, help="the same by their number")
    parser.add_argument("--distributed-timeout-seconds-after-init", type=int, help="instead of the minutes")
    parser.add_argument("--distributed-backend", default=os.environ.get("DTTUI_BACKEND", "gloo"))
    parser.add_argument("--lr", type=float, default=3e-3, help="(%(default)s)")
    parser.add_argument("--save", type=Path, default=os.environ.get("DTTUI_CHECKPOINT_DIR") or "checkpoints")
    of_job = [] if TOLD or not BESIDE.exists() else BESIDE.read_text(encoding="utf-8").splitlines()
    options, others = parser.parse_known_args([*of_job, *sys.argv[1:]])
    if others and os.environ.get("RANK") == "0":
        print("not for this script:", *others, file=sys.stderr)
    return options


def read_text(length: int) -> Tensor:
    """The bytes of the job's dataset, a file or the files of a directory: enough for samples of a length."""
    source = Path((CONFIG.get("dataset") or {}).get("path", __file__))
    files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
    data = bytearray(b"".join(path.read_bytes() for path in files))
    if len(data) <= length:
        raise SystemExit(f"{source} holds {len(data)} bytes, too few for samples of {length} and the next one")
    return torch.frombuffer(data, dtype=torch.uint8).long()


def micro_batches(text: Tensor, options: argparse.Namespace, step: int, device: Any) -> Iterator[Tensor]:
    """The samples of one step that fall to this replica of the model: the same on all its ranks."""
    dice = torch.Generator().manual_seed(options.seed * 10**9 + step * 10**4 + place.get_data_parallel_rank())
    while True:
        starts = torch.randint(len(text) - options.seq_length, (options.micro_batch_size, 1), generator=dice)
        yield text[starts + torch.arange(options.seq_length + 1)].to(device)


def forward(batches: Iterator[Tensor], model: Any) -> tuple[Tensor, Any]:
    """One micro-batch through this rank's layers, and how its output becomes a loss."""
    samples = next(batches)
    tokens, labels = samples[:, :-1].contiguous(), samples[:, 1:].contiguous()
    places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    hidden = torch.ones(1, 1, tokens.shape[1], tokens.shape[1], device=tokens.device).tril() < 0.5
    losses = model(tokens, places, hidden, labels=labels)
    return losses, lambda losses: (losses.mean(), {"loss": losses.detach().mean()})


def make_model(options: argparse.Namespace, on_cpu: bool) -> Any:
    """This rank's part of the model, with gradients averaged over replicas and summed where ranks share weights."""
    config = TransformerConfig(
        num_layers=options.num_layers,
        hidden_size=options.hidden_size,
        num_attention_heads=options.num_attention_heads,
        tensor_model_parallel_size=options.tensor_model_parallel_size,
        pipeline_model_parallel_size=options.pipeline_model_parallel_size,
        sequence_parallel=options.sequence_parallel,
        bf16=options.bf16,
        params_dtype=torch.bfloat16 if options.bf16 else torch.float32,
        pipeline_dtype=torch.bfloat16 if options.bf16 else torch.float32,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=on_cpu,
    )
    config.finalize_model_grads_func = finalize_model_grads
    first, last = place.is_pipeline_first_stage(), place.is_pipeline_last_stage()
    shape = {"vocab_size": 256, "max_sequence_length": options.seq_length}
    layers = gpt_layer_specs.get_gpt_layer_local_spec()
    if gpt_layer_specs.HAVE_TE and not on_cpu:  # Transformer Engine, which --sequence-parallel needs
        layers = gpt_layer_specs.get_gpt_layer_with_transformer_engine_spec()
    model = GPTModel(config, layers, pre_process=first, post_process=last, **shape)
    model = model.to(torch.cuda.current_device(), config.params_dtype)
    size = options.ddp_bucket_size
    if options.ddp_num_buckets:
        size = sum(weight.numel() for weight in model.parameters()) // options.ddp_num_buckets
    reduction = DistributedDataParallelConfig(
        grad_reduce_in_fp32=not options.grad_reduce_in_bf16,
        overlap_grad_reduce=options.overlap_grad_reduce,
        bucket_size=size,  # Without overlap there is one, whatever this says.
    )
    parallel = DistributedDataParallel(config, reduction, model)
    config.no_sync_func = parallel.no_sync  # Until the last micro-batch of a step gradients are only added up.
    if dist.get_rank() == 0:
        count, sent_as = sum(len(group.buckets) for group in parallel.bucket_groups), parallel.buffers[0].grad_dtype
        print("buckets of gradients:", count, "of", str(sent_as).removeprefix("torch."), flush=True)
    return parallel


def report(**values: float) -> None:
    """A line for people, and one for dttui."""
    print("  ".join(f"{key} {value:g}" for key, value in values.items()), flush=True)
    if path := os.environ.get("DTTUI_METRICS"):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, json.dumps(values).encode() + b"\n")
        os.close(file)


def newest(directory: Path) -> Path | None:
    """The newest checkpoint that is complete on all hosts, else BEFORE."""
    everywhere: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, {mark.parent.name for mark in directory.glob("*/COMPLETE")})
    name: str | None = max(set.intersection(*everywhere), default=None)
    if name:
        return directory / name
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


def keep(directory: Path, step: int, state: dict[str, Any]) -> None:
    """Save a checkpoint: each rank its part, then each host the file that says that it is whole."""
    checkpoint = directory / f"step-{step:08}"
    checkpoint.mkdir(parents=True, exist_ok=True)
    torch.save({**state, "step": step}, checkpoint / f"rank-{dist.get_rank()}.pt")
    dist.barrier()
    if os.environ["LOCAL_RANK"] == "0":
        finish(checkpoint)


def is_due(step: int, kept_at: float, options: argparse.Namespace) -> bool:
    """Whether a checkpoint is to be kept after a step, the last one having been kept at a time; by rank 0's clock."""
    since = torch.tensor(time.monotonic() - kept_at, device=torch.cuda.current_device())
    if INTERVAL_S:
        dist.broadcast(since, 0)
    is_late = INTERVAL_S and since.item() >= INTERVAL_S
    return bool(is_late or step % options.save_interval == 0 or step == options.train_iters)


def main() -> None:
    options = read_options()
    text = read_text(options.seq_length)
    on_cpu = options.distributed_backend != "nccl"
    if not on_cpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    limit = timedelta(minutes=options.distributed_timeout_minutes)
    with OnCpu() if on_cpu else nullcontext():
        dist.init_process_group(options.distributed_backend, timeout=limit)
        place.initialize_model_parallel(options.tensor_model_parallel_size, options.pipeline_model_parallel_size)
        if options.distributed_timeout_seconds_after_init:
            place.update_pg_timeout(timedelta(seconds=options.distributed_timeout_seconds_after_init))
        torch.manual_seed(options.seed + place.get_pipeline_model_parallel_rank())
        if not on_cpu:
            random.model_parallel_cuda_manual_seed(options.seed)
        train(options, text, make_model(options, on_cpu))
    dist.barrier()
    dist.destroy_process_group()


def train(options: argparse.Namespace, text: Tensor, model: Any) -> None:
    device: Any = torch.cuda.current_device()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    start, found = 0, newest(options.save)
    if found:
        state = torch.load(found / f"rank-{dist.get_rank()}.pt", map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    pass_size = options.micro_batch_size * place.get_data_parallel_world_size()
    if options.global_batch_size % pass_size:
        raise SystemExit(f"a batch of {options.global_batch_size} samples is no whole number of passes of {pass_size}")
    count = options.global_batch_size // pass_size
    run = partial(get_forward_backward_func(), forward_step_func=forward, model=model, num_microbatches=count)
    kept_at = time.monotonic()
    for step in range(start, options.train_iters):
        model.zero_grad_buffer()
        data = micro_batches(text, options, step, device)
        sizes = {"seq_length": options.seq_length, "micro_batch_size": options.micro_batch_size}
        losses = run(data_iterator=data, forward_only=False, **sizes)
        for weight in model.parameters():
            weight.grad = weight.main_grad.to(weight.dtype)
        optimizer.step()
        optimizer.zero_grad()  # Each is the buffer itself, which the next backward pass would add to twice.
        if place.is_pipeline_last_stage():
            mean = torch.stack([part["loss"] for part in losses]).mean()
            dist.all_reduce(mean, group=place.get_data_parallel_group())
            mean /= place.get_data_parallel_world_size()
            if place.get_data_parallel_rank() == place.get_tensor_model_parallel_rank() == 0:
                report(step=step + 1, loss=round(mean.item(), 6), rank=dist.get_rank())
        if is_due(step + 1, kept_at, options):
            keep(options.save, step + 1, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
            kept_at = time.monotonic()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # not the usual way out: gloo's threads abort a process now and then that takes itself down
