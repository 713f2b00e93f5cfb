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
MODELS = ((12, 1024, 16, 1024, 32000, 4), (6, 2048, 16, 512, 50304, 2), (4, 4096, 32, 2048, 51200, 1))
"""Layers, hidden size, heads, sequence length, vocabulary and micro-batch."""


@pytest.fixture(scope="module")
def tracked() -> dict[tuple[int, ...], dict[str, int]]:
    """What the tracker finds for each, in bytes by kind; one process, as most of its time is torch's import."""
    script = Path(__file__).with_name("fsdp_memory.py")
    command = [sys.executable, str(script), str(RANKS), json.dumps(MODELS)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return {model: json.loads(line) for model, line in zip(MODELS, ran.stdout.splitlines(), strict=True)}


@pytest.mark.torch
@pytest.mark.timeout(600)  # It only computes, a quarter of a minute of one core; who shares that waits longer.
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_fully_sharded_memory_is_what_torchs_tracker_finds(
    tracked: dict[tuple[int, ...], dict[str, int]], model: tuple[int, int, int, int, int, int]
) -> None:
    found = tracked[model]
    layers, hidden, heads, length, vocabulary, batch = model
    shape = ModelShape(
        layers,
        hidden,
        heads,
        length,
        vocabulary,
        parameter_count(layers, hidden, length, vocabulary),
        attention="plain",
        dropout=True,
    )
    layout = Layout(RANKS, micro_batch=batch, global_batch=RANKS * batch, zero_stage=3, precision="bf16")
    parts = memory_per_gpu(shape, layout).parts

    # FSDP2 keeps the fp32 parameters, which are Adam's master copy here, and no half-precision copy between steps.
    kept = found["SHARDED_PARAM"] + found["OPT"]
    assert parts["optimizer"] == pytest.approx(kept, rel=0.01)
    ours = sum(parts.values()) - parts["context"] - parts["buckets"]
    assert ours == pytest.approx(found["Total"], rel=0.15)
