"""Run beside the example's train.py: trains its model by each configuration, and tells what it sent and when."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from train import Model, read_text, samples  # type: ignore[import-not-found]  # the example's, in its directory

STEPS, MICRO = 4, 4
OF_GRADIENTS = 100
"""Elements from which on it is gradients that ranks sum, and no norm of them."""


def main() -> None:
    deepspeed.init_distributed()
    torch.set_num_threads(1)
    text = read_text()
    batches = [samples(text, MICRO, step * dist.get_world_size() + dist.get_rank()) for step in range(STEPS)]
    own = Path(os.environ["DTTUI_DEEPSPEED_CONFIG"])
    files = {path.stem: path for path in sorted(Path().glob("*.json"))} | {"own": own}
    told = {name: trained(json.loads(path.read_text(encoding="utf-8")), batches) for name, path in files.items()}
    if dist.get_rank() == 0:
        print("told " + json.dumps(told), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def trained(config: dict[str, Any], batches: list[torch.Tensor]) -> dict[str, Any]:
    """Train by a configuration from the same weights on the same batches."""
    torch.manual_seed(1)
    model = Model()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    losses: list[float] = []
    sent: list[list[tuple[int, str]]] = []
    early: list[int] = []
    before = 0
    if engine.zero_optimization_stage() == 1:
        # Its gradient is the last one of a backward pass.
        model.bytes.weight.register_post_accumulate_grad_hook(lambda _: early.append(len(reductions()) - before))
    for batch in batches:
        before = len(reductions())
        loss = engine(batch)
        engine.backward(loss)
        engine.step()
        sent.append(reductions()[before:])
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(float(mean) / dist.get_world_size())
    with deepspeed.zero.GatheredParameters([*model.parameters()]):
        weights = [float(weight.detach().double().square().sum()) for weight in model.parameters()]
    return {
        "losses": losses,
        "weights": weights,
        "sent": sent,
        "early": early,
        "overlaps": engine.zero_overlap_comm(),
        "bucket": engine.zero_reduce_bucket_size(),
    }


def reductions() -> list[tuple[int, str]]:
    """Return elements and type of all gradients that were reduced up to now, as torch's flight recorder has them."""
    c10d: Any = torch._C._distributed_c10d  # noqa: SLF001  there is no other way in
    entries = json.loads(c10d._dump_fr_trace_json()).get("entries", [])  # noqa: SLF001
    calls = [item for item in entries if "reduce" in item["profiling_name"]]
    found = [(sum(map(_elements, item["input_sizes"])), item["input_dtypes"][0]) for item in calls]
    return [item for item in found if item[0] >= OF_GRADIENTS]


def _elements(shape: list[int]) -> int:
    return int(torch.Size(shape).numel())


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # as train.py does
