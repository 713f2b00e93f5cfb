"""Templates: each trains on the embedded cluster to the end, as `dttui init` writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.frameworks.launching import apply, example
from tests.integration.headless import dttui, dttui_here, result_of
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents


@pytest.mark.parametrize(
    ("template", "rank", "checkpoints"),
    [
        ("resnet", 0, ["epoch-000001", "epoch-000002"]),
        pytest.param("vision", 0, ["step-00000030", "step-00000060"], marks=pytest.mark.thorough),
        pytest.param("bert", 3, ["step-00000030", "step-00000060"], marks=pytest.mark.thorough),
        pytest.param("llm", 0, ["step-00000030", "step-00000040"], marks=pytest.mark.thorough),
        pytest.param("pytorch-fsdp", 0, ["step-00000030", "step-00000060"], marks=pytest.mark.thorough),
        pytest.param("command", 0, ["step-00000030", "step-00000060"], marks=pytest.mark.thorough),
        ("fault-tolerant", 0, ["step-00000060", "step-00000080", "step-00000100"]),
    ],
)
def test_it_trains_as_it_is_written(
    tmp_path: Path, demo_root: Path, template: str, rank: int, checkpoints: list[str]
) -> None:
    job = tmp_path / "mine" / "job.yaml"
    written = dttui_here("--demo", "init", "--template", template, job.parent)
    assert written.returncode == 0, written.stderr
    done = dttui("--demo", "--apply", job, "--output", "json", deadline_s=170.0)
    assert done.returncode == 0, done.stdout + done.stderr
    result = result_of(done)
    assert (result["state"], result["world_size"]) == ("SUCCEEDED", 4)
    told = (Path(result["directory"]) / "telemetry/metrics.jsonl").read_text().splitlines()
    losses = [line["loss"] for line in map(json.loads, told) if line["rank"] == rank and "loss" in line]
    assert losses[-1] < losses[0] - 1.5
    kept = demo_root.glob(f"pytorch-dev-env/jobs/{result['job_id']}/0/checkpoints/*/COMPLETE")
    assert sorted(mark.parent.name for mark in kept) == checkpoints


@pytest.mark.thorough
def test_the_variation_of_megatrons_example_trains_two_replicas(tmp_path: Path, frameworks_python: Path) -> None:
    job = example("gpt3")
    job["communication"]["collective_timeout"] = "9m"
    ended = apply(tmp_path, "megatron-lm", job, frameworks_python)
    losses = ended.losses()
    assert ended.result["world_size"] == 4
    assert losses[60] < losses[1] - 1.5
