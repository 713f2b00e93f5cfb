"""The example of the collective operators: its readings in one process, and its training in every way it has."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dttui import locations

EXAMPLE = locations.shipped("examples") / "collectives"
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install .[torch]"
    ),
]
RANKS, STEPS = 2, 12
WAYS: dict[str, dict[str, Any]] = {
    "ddp": {"way": "ddp"},
    "loop": {"way": "loop"},
    "hooks": {"way": "hooks"},
    "accumulated": {"way": "hooks", "accumulate": 3},
    "bf16": {"way": "hooks", "compression": "bf16"},
    "topk": {"way": "hooks", "compression": "topk"},
    "powersgd": {"way": "hooks", "compression": "powersgd"},
    "parallel_model": {"way": "parallel_model"},
}
EVERY_WAY = """
import json, os, sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import torch.distributed as dist
import train

dist.init_process_group("gloo")
train.dist.init_process_group = lambda _backend: None  # torchrun's store is for one group
for name, settings in json.loads(sys.argv[2]).items():
    train.SETTINGS.update({"way": "", "accumulate": 1, "compression": "none", "checkpoint_every": 6} | settings)
    train.DIRECTORY = Path(name)
    os.environ["DTTUI_METRICS"] = name + ".jsonl"
    train.main()
    if settings["way"] == "parallel_model":  # It goes on from its own parts.
        train.SETTINGS["steps"] += 1
        train.main()
sys.stdout.flush()
os._exit(0)
"""


def test_its_readings_hold() -> None:
    done = subprocess.run([sys.executable, "usage.py"], cwd=EXAMPLE, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(": True$", done.stdout, re.MULTILINE)) == 7
    assert "send and recv: [1.0, 1.0, 1.0] and by a handle [2.0, 2.0, 2.0]" in done.stdout
    told = r"^dttui.collectives DEBUG: rank (\d) of 4: all_reduce of \(1000,\) torch.float32 over simulated took"
    logged = re.findall(told, done.stdout, re.MULTILINE)
    assert logged == ["0", "1", "2", "3"]
    assert "batched: [12.0, 16.0]" in done.stdout
    assert "in time: 4.0" in done.stdout
    assert len(re.findall(r"all_reduce took \d+\.\d{4}s", done.stdout)) == 4
    assert done.stdout.count("bus bandwidth") == 3


def test_every_way_trains_and_those_that_compute_the_same_lose_the_same(tmp_path: Path) -> None:
    script = tmp_path / "every_way.py"
    script.write_text(EVERY_WAY)
    (tmp_path / "config.json").write_text(json.dumps({"batch_size": 24, "settings": {"steps": STEPS}}))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DTTUI_")}
    arguments = [str(script), str(EXAMPLE), json.dumps(WAYS)]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", *arguments],
        cwd=tmp_path,
        env=kept | {"DTTUI_CONFIG": str(tmp_path / "config.json"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    losses = {name: [row["loss"] for row in rows(tmp_path / f"{name}.jsonl")] for name in WAYS}
    for name, found in losses.items():
        assert len(found) == STEPS + (name == "parallel_model"), name
        assert found[-1] < 0.9 * found[0], name
        assert (tmp_path / name / f"step-{STEPS:08}" / "COMPLETE").exists()
    for name in ("loop", "hooks", "accumulated"):
        assert losses[name] == pytest.approx(losses["ddp"], abs=1e-5), name
    assert losses["bf16"] == pytest.approx(losses["ddp"], abs=5e-3)


def rows(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
