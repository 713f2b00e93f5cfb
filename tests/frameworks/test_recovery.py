"""Trainings of every framework that lose a rank and then their master's host, and end as if they had not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.checkpoints import JOINED

from tests.frameworks.launching import example, slots
from tests.integration import restarted_jobs
from tests.integration.gangs import ONE, TWO
from tests.integration.restarted_jobs import KEPT_EVERY, trains_on_after_a_lost_rank_and_a_lost_master
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents

STEPS = 120
STATE = f"**/step-{STEPS:08}/*.pt"
ARGS = ["--steps", str(STEPS), "--checkpoint-every", str(KEPT_EVERY)]


def on_two_hosts(name: str, **run: Any) -> dict[str, Any]:
    job = example(name)
    job["cluster"] = slots({ONE: 1, TWO: 1})
    job["run"] |= run
    return job


@pytest.mark.xdist_group("recovery of DeepSpeed")
def test_deepspeed_trains_on_from_its_checkpoint(
    tmp_path: Path, frameworks_python: Path, deepspeed_variables: dict[str, str]
) -> None:
    """Over within 300 s; each rank keeps its own part of everything."""
    job = on_two_hosts("deepspeed", args=ARGS)
    job["strategy"]["zero_stage"] = 3
    losses = trains_on_after_a_lost_rank_and_a_lost_master(
        tmp_path, "deepspeed", job, frameworks_python, STEPS, env=deepspeed_variables, state=STATE
    )
    assert losses[STEPS] < losses[1] - 2


@pytest.mark.thorough
def test_deepspeed_trains_on_from_parts_that_no_mark_names(
    tmp_path: Path, frameworks_python: Path, deepspeed_variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over within 300 s: what each host has written alone is brought together."""
    scripts = tmp_path / "scripts"
    shutil.copytree(restarted_jobs.EXAMPLES / "deepspeed", scripts / "deepspeed")
    script = scripts / "deepspeed" / "train.py"
    text, mark = script.read_text(), '    (folder / "COMPLETE").touch()\n'
    assert mark in text
    script.write_text(text.replace(mark, ""))
    monkeypatch.setattr(restarted_jobs, "EXAMPLES", scripts)
    job = on_two_hosts("deepspeed", args=ARGS)
    job["strategy"]["zero_stage"] = 3
    losses, places = restarted_jobs.trains_on_from_parts_on_own_disks(
        tmp_path, "deepspeed", job, frameworks_python, STEPS, deepspeed_variables
    )
    assert all(place.parent.name == JOINED for place in places)
    assert losses[STEPS] < losses[1] - 2


@pytest.mark.xdist_group("recovery of Megatron-LM")
def test_megatron_trains_on_from_its_checkpoint(tmp_path: Path, frameworks_python: Path) -> None:
    """Over within 300 s; each stage of the pipeline is on a host of its own."""
    job = on_two_hosts("megatron-lm")
    job["strategy"] |= {"tensor_parallel_size": 1, "pipeline_parallel_size": 2}
    job["model"]["layers"] = 2
    job["framework_options"]["save_interval"] = KEPT_EVERY
    job["framework_options"]["arguments"]["train_iters"] = STEPS
    losses = trains_on_after_a_lost_rank_and_a_lost_master(
        tmp_path, "megatron-lm", job, frameworks_python, STEPS, told_by=1, state=STATE
    )
    assert losses[STEPS] < losses[1] - 1.5


def test_tensorflow_trains_on_from_its_checkpoint(tmp_path: Path, tensorflow_python: Path) -> None:
    """Over within 300 s."""
    job = on_two_hosts("tensorflow", args=ARGS)
    variables = {"TF_CPP_MIN_LOG_LEVEL": "1"}
    losses = trains_on_after_a_lost_rank_and_a_lost_master(
        tmp_path,
        "tensorflow",
        job,
        tensorflow_python,
        STEPS,
        env=variables,
        state=STATE.replace("*.pt", "*.data-*"),
    )
    assert losses[STEPS] < losses[1] - 1.2


def test_horovod_trains_on_from_its_checkpoint(tmp_path: Path, horovod_python: Path) -> None:
    """Over within 300 s."""
    job = on_two_hosts("horovod", args=ARGS)
    losses = trains_on_after_a_lost_rank_and_a_lost_master(tmp_path, "horovod", job, horovod_python, STEPS, state=STATE)
    assert losses[STEPS] < losses[1] - 2
