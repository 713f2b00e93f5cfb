"""Run by an interpreter that has DeepSpeed: reads files by its own code, and tells what it made of them as JSON.

usage: deepspeed_reader.py < {"configs": [[FILE, WORLD SIZE, DATA DEGREE], …], "hostfiles": [FILE, …]}
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import torch
from deepspeed.launcher.runner import fetch_hostfile
from deepspeed.runtime import config as runtime
from deepspeed.runtime.lr_schedules import VALID_LR_SCHEDULES
from deepspeed.runtime.zero.utils import ZERO_SUPPORTED_OPTIMIZERS


class Watched(dict):  # type: ignore[type-arg]  # a plain dict to DeepSpeed
    """A configuration that notes which keys are asked for."""

    asked: set[str] = set()  # noqa: RUF012  # of all of them together

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def keys(self) -> Any:
        return self

    def __copy__(self) -> Watched:
        return Watched(self.items())


class Topology:
    """What a script that splits its model tells DeepSpeed of its ranks."""

    def __init__(self, data: int) -> None:
        self.data = data

    def get_data_parallel_world_size(self) -> int:
        return self.data


def read(path: str, world_size: int, data: int) -> dict[str, Any]:
    runtime.dist.get_world_size = lambda *_: world_size
    runtime.dist.get_rank = lambda *_: 0
    with open(path) as file:
        values = json.load(file)
    config = runtime.DeepSpeedConfig(Watched(values), mpu=Topology(data) if data != world_size else None)
    config._do_sanity_check()  # noqa: SLF001 - what it does itself
    sizes = (config.train_batch_size, config.train_micro_batch_size_per_gpu, config.gradient_accumulation_steps)
    zero = config.zero_config
    return {
        "batches": sizes,
        "world_size": config.world_size,
        "stage": int(zero.stage),
        "offload": [part.device if part else "none" for part in (zero.offload_optimizer, zero.offload_param)],
        "buckets": [zero.reduce_bucket_size, zero.allgather_bucket_size],
        "precision": [config.float16_config.enabled, config.bfloat16_config.enabled],
        "clipping": config.gradient_clipping,
        "optimizer": [config.optimizer_name, config.optimizer_params],
        "scheduler": config.scheduler_name,
        "untested": config.zero_allow_untested_optimizer,
        "autotp": config.tensor_parallel_config.autotp_size,
    }


def optimizers() -> Iterator[str]:
    yield from runtime.DEEPSPEED_OPTIMIZERS
    yield from (name for name in dir(torch.optim) if isinstance(getattr(torch.optim, name), type))


if __name__ == "__main__":
    wanted = json.load(sys.stdin)
    answer = {
        "configs": [read(*item) for item in wanted["configs"]],
        "hostfiles": [list(fetch_hostfile(path).items()) for path in wanted["hostfiles"]],
        "asked": sorted(Watched.asked - runtime._REMOVED_TOP_LEVEL_CONFIG_KEYS.keys()),  # noqa: SLF001 - told nowhere else
        "optimizers": sorted(optimizers()),
        "tested": sorted({kind.__name__ for kind in ZERO_SUPPORTED_OPTIMIZERS}),
        "schedules": sorted(VALID_LR_SCHEDULES),
    }
    print("answer " + json.dumps(answer))
