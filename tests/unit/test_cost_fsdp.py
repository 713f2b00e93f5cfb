"""Memory of fully sharded data parallel against torch's own tracker, under a process group that only pretends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dttui.planning.cost.layout import Layout
from dttui.planning.cost.memory import memory_per_gpu
from dttui.planning.cost.shape import ModelShape, parameter_count

RANKS = 8


@pytest.mark.torch
@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "length", "vocabulary", "batch"),
    [(12, 1024, 16, 1024, 32000, 4), (24, 2048, 16, 512, 50304, 2), (8, 4096, 32, 2048, 51200, 1)],
)
def test_fully_sharded_memory_is_what_torchs_tracker_finds(
    layers: int, hidden: int, heads: int, length: int, vocabulary: int, batch: int
) -> None:
    arguments = map(str, (RANKS, layers, hidden, heads, length, vocabulary, batch))
    script = Path(__file__).with_name("fsdp_memory.py")
    ran = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, timeout=150, check=True)
    found = json.loads(ran.stdout)

    shape = ModelShape(layers, hidden, heads, length, vocabulary, parameter_count(layers, hidden, length, vocabulary))
    layout = Layout(RANKS, micro_batch=batch, global_batch=RANKS * batch, zero_stage=3, precision="bf16")
    parts = memory_per_gpu(shape, layout).parts

    # FSDP2 keeps the fp32 parameters, which are Adam's master copy here, and no half-precision copy between steps.
    kept = found["SHARDED_PARAM"] + found["OPT"]
    assert parts["optimizer"] == pytest.approx(kept, rel=0.01)
    ours = sum(parts.values()) - parts["context"] - parts["buckets"]
    assert ours == pytest.approx(found["Total"], rel=0.15)
