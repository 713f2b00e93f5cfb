"""Estimates that learn from real trainings on this machine's CPU: of three jobs, what a fourth one takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dttui import locations
from dttui.fleet.known_hardware import gpu_types
from dttui.fleet.measured_runs import measured_runs
from dttui.planning.cost.calibration import check, learn
from tests.integration.headless import dttui, dttui_here, example_job, result_of
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents

HOST = "nlp-research-lab"
LAYERS, BLOCK, EACH = 2, 128, 8
TEN_TIMES_TOO_FAST = {
    "name": "A100", "type": "A100", "device": "cpu", "memory_gib": 16, "fp32": 1.0, "memory_bandwidth": 100,
    "link": "pcie", "link_bandwidth": 10, "source": "ten times what a core does",
}  # fmt: skip


def job_of(directory: Path, width: int, ranks: int) -> Path:
    directory.mkdir()
    batch = EACH * ranks
    options = {"--layers": LAYERS, "--width": width, "--heads": width // 32, "--block-size": BLOCK}
    options |= {"--batch-size": batch, "--steps": 12, "--log-every": 1}
    path = example_job(directory, {HOST: ranks}, *(str(word) for pair in options.items() for word in pair))
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    document["distributed_training"] |= {
        "model": {
            "layers": LAYERS, "hidden_size": width, "heads": width // 32, "seq_length": BLOCK, "vocab_size": 256,
            "precision": "fp32",
        },
        "strategy": {"type": "data_parallel", "data_parallel": {"batch_size": batch}},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.torch
def test_three_jobs_on_a_cpu_calibrate_what_a_fourth_is_estimated_at(tmp_path: Path) -> None:
    """How near it comes is for `bench/calibration.py` to say, on a machine that does nothing else."""
    file = locations.gpu_types_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump({"gpus": [TEN_TIMES_TOO_FAST]}))
    names = []
    for width, ranks in ((192, 1), (320, 1), (192, 2), (256, 2)):
        job = job_of(tmp_path / f"{width}x{ranks}", width, ranks)
        done = dttui("--demo", "--apply", job, "--output", "json")
        assert done.returncode == 0, done.stderr
        names.append(result_of(done)["job_id"])
    runs = measured_runs()
    assert [run.job for run in runs] == names
    *known, fourth = runs
    assert {run.basis.kind for run in runs} == {"A100"}
    assert [(run.basis.shape.hidden_size, run.basis.gpus) for run in runs] == [(192, 1), (320, 1), (192, 2), (256, 2)]
    learned = learn(known, gpu_types())
    (item,) = check([fourth], gpu_types(), learned)
    assert fourth.step_time_s is not None
    assert fourth.memory_bytes is not None
    before, after = (abs(told / fourth.step_time_s - 1) for told in (item.step_time_before_s, item.step_time_after_s))
    assert after < before
    assert before > 0.6
    before, after = (
        abs(told / fourth.memory_bytes - 1) for told in (item.memory_before_bytes, item.memory_after_bytes)
    )
    assert after < before
    assert after < 0.1

    estimated = dttui_here("--demo", "estimate", job, "--output", "json")
    calibrated = json.loads(estimated.stdout)
    assert calibrated["inputs"]["calibration.time_jobs"] == {
        "value": ", ".join(names),
        "source": "measured",
        "measured_at": fourth.ended_at,
    }
    assert dttui_here("calibrate", "--drop", "A100", "--yes").returncode == 0
    bare = json.loads(dttui_here("--demo", "estimate", job, "--output", "json").stdout)
    assert bare["step_time_s"]["value"] == pytest.approx(item.step_time_before_s)
    assert bare["memory_per_gpu_gb"]["low"] == pytest.approx(item.memory_before_bytes / 1e9)
    assert calibrated["step_time_s"]["value"] > 2 * bare["step_time_s"]["value"]
