"""Run beside the example's train.py: trains its model by DDP and then in each stage of ZeRO, and tells all losses."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from train import Model, read_text, samples  # type: ignore[import-not-found]  # the example's, in its directory

STEPS, MICRO = 6, 4


def main() -> None:
    with open(os.environ["DTTUI_DEEPSPEED_CONFIG"]) as file:
        config = json.load(file)
    deepspeed.init_distributed()
    text = read_text()
    batches = [samples(text, MICRO, step * dist.get_world_size() + dist.get_rank()) for step in range(STEPS)]
    losses: dict[str, list[float]] = {}
    torch.manual_seed(1)
    parallel = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(parallel.parameters(), **_arguments(config))
    for batch in batches:
        optimizer.zero_grad()
        loss = parallel(batch)
        loss.backward()
        optimizer.step()
        losses.setdefault("ddp", []).append(_mean(loss))
    for stage in range(4):
        config["zero_optimization"]["stage"] = stage
        torch.manual_seed(1)
        model = Model()
        engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=dict(config))
        assert engine.zero_optimization_stage() == stage
        for batch in batches:
            loss = engine(batch)
            engine.backward(loss)
            engine.step()
            losses.setdefault(str(stage), []).append(_mean(loss))
    if dist.get_rank() == 0:
        print("losses " + json.dumps(losses), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def _arguments(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config["optimizer"]["params"].items() if key != "torch_adam"}


def _mean(loss: torch.Tensor) -> float:
    value = loss.detach().clone()
    dist.all_reduce(value)
    return float(value) / dist.get_world_size()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # as train.py does
