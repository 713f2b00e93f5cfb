"""The GPT example with ranks that are not equally fast: a sample takes each of them a time of its own, asleep.

`SECONDS_A_SAMPLE` lists those of all ranks. In attempt 0 the last rank dies once `DIES_AFTER` steps are made.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import data  # type: ignore[import-not-found]  # of the example, beside which this file lies

WHOLE = data.Samples.share
DIES_AFTER = int(os.environ.get("DIES_AFTER", "0"))


def share(samples: data.Samples, step: int, rank: int, world_size: int) -> torch.Tensor:
    """Hand out the same samples, after the time that they take."""
    if DIES_AFTER and step > DIES_AFTER and rank == world_size - 1 and os.environ["DTTUI_ATTEMPT"] == "0":
        os.kill(os.getpid(), 9)
    mine: torch.Tensor = WHOLE(samples, step, rank, world_size)
    time.sleep(len(mine) * float(os.environ["SECONDS_A_SAMPLE"].split(",")[rank]))
    return mine


if __name__ == "__main__":
    data.Samples.share = share
    runpy.run_path(str(Path(__file__).with_name("train.py")), run_name="__main__")
