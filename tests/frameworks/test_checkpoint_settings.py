"""The examples keep as many checkpoints as a job says, and as often, where their own settings do not say it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.launching import apply, example, slots
from tests.integration.gangs import ONE, TWO
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents

STEPS = 8
EVERY_STEP = {"interval": "0.001s", "keep": 2}
LAST_TWO = [f"step-{step:08}" for step in (STEPS - 1, STEPS)]
IN_SETTINGS = ("command", "vision", "bert", "pytorch-fsdp", "collectives")


def kept(tmp_path: Path, name: str, job: dict[str, Any], python: Path, said: dict[str, Any], **run: Any) -> list[str]:
    """Train on hosts that see the same directory; return the complete checkpoints that are left."""
    place = tmp_path / "kept"
    if name != "bert":  # It has four stages.
        job["cluster"] = slots({ONE: 1, TWO: 1})
    job["require_process_group"] = job["framework"] not in ("command", "tensorflow")  # Of those nobody can see one.
    job["recovery"] = {"checkpoint": {"dir": str(place), "shared": True, **said}}
    apply(tmp_path, name, job, python, **run)
    return sorted(mark.parent.name for mark in place.glob("*/COMPLETE"))


@pytest.mark.parametrize(
    "name",
    [name if name == "pytorch-fsdp" else pytest.param(name, marks=pytest.mark.thorough) for name in IN_SETTINGS],
)
def test_the_interval_and_the_number_are_the_jobs(name: str, tmp_path: Path, demo_root: Path) -> None:
    job = example(name)
    job["settings"]["steps"] = STEPS
    assert kept(tmp_path, name, job, Path(sys.executable), EVERY_STEP) == LAST_TWO


def test_those_of_the_gpt_are(tmp_path: Path, demo_root: Path) -> None:
    job = example("gpt")
    job["run"]["args"] = ["--steps", str(STEPS)]
    assert kept(tmp_path, "gpt", job, Path(sys.executable), EVERY_STEP) == LAST_TWO


@pytest.mark.thorough
def test_the_command_line_of_the_gpt_counts_before_the_job(tmp_path: Path, demo_root: Path) -> None:
    job = example("gpt")
    job["run"]["args"] = ["--steps", str(STEPS), "--checkpoint-every", "2", "--keep-checkpoints", "3"]
    left = kept(tmp_path, "gpt", job, Path(sys.executable), EVERY_STEP)
    assert left == [f"step-{step:08}" for step in (STEPS - 4, STEPS - 2, STEPS)]


@pytest.mark.thorough
def test_the_last_epoch_is_kept_where_no_interval_has_passed(tmp_path: Path, demo_root: Path) -> None:
    job = example("resnet")
    assert kept(tmp_path, "resnet", job, Path(sys.executable), {"interval": "1h"}) == ["epoch-000002"]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["deepspeed", "megatron-lm"])
def test_those_of_the_other_frameworks_are(
    name: str,
    tmp_path: Path,
    demo_root: Path,
    frameworks_python: Path,
    deepspeed_variables: dict[str, str],
) -> None:
    job = example(name)
    if name == "deepspeed":
        job["run"]["args"] = ["--steps", str(STEPS)]
    else:
        job["framework_options"]["arguments"]["train_iters"] = STEPS
        job["strategy"] |= {"tensor_parallel_size": 1, "pipeline_parallel_size": 1}
    assert kept(tmp_path, name, job, frameworks_python, EVERY_STEP, env=deepspeed_variables) == LAST_TWO


@pytest.mark.thorough
def test_those_of_tensorflow_are(tmp_path: Path, demo_root: Path, tensorflow_python: Path) -> None:
    job = example("tensorflow")
    job["run"]["args"] = ["--steps", str(STEPS)]
    # By whole seconds here: only the last step comes so late.
    left = kept(tmp_path, "tensorflow", job, tensorflow_python, {"interval": "1h", "keep": 2})
    assert left == LAST_TWO[1:]


@pytest.mark.thorough
def test_those_of_horovod_are(tmp_path: Path, demo_root: Path, horovod_python: Path) -> None:
    job = example("horovod")
    job["run"]["args"] = ["--steps", str(STEPS)]
    assert kept(tmp_path, "horovod", job, horovod_python, EVERY_STEP) == LAST_TWO
