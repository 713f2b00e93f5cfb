"""A job that is over goes on, as another job, from what it had written."""

from __future__ import annotations

from pathlib import Path

import yaml

from dttui import jobs
from tests.integration.headless import dttui_here, shell_job
from tests.processes import ended_agents as ended_agents

ONE, TWO = "pytorch-dev-env", "llm-training-env"
STEPS = (
    'i=0; [ -z "$DTTUI_RESUME_FROM" ] || i=$(cat "$DTTUI_RESUME_FROM/step"); echo "from $i by $0"; '
    'for step in 1 2 3; do i=$((i+1)); at="$DTTUI_CHECKPOINT_DIR/step-$i"; mkdir -p "$at"; echo $i > "$at/step"; '
    'touch "$at/COMPLETE"; echo "{\\"step\\": $i}" >> "$DTTUI_METRICS"; done; '
    "exit $(( DTTUI_ATTEMPT < ${GOOD_FROM:-99} ? 3 : 0 ))"
)


def _job(tmp_path: Path, **recovery: object) -> Path:
    path = shell_job(tmp_path, {ONE: 1}, STEPS)
    document = yaml.safe_load(path.read_text())
    document["distributed_training"]["recovery"] = recovery
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def test_a_job_goes_on_from_its_newest_checkpoint_and_so_does_the_one_after(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    job = _job(tmp_path, checkpoint={"dir": str(checkpoints), "resume_args": ["{step}"]})
    first = dttui_here("--demo", "--apply", job)
    assert (first.returncode, "from 0 by sh" in first.stdout) == (100, True), first.stderr
    before = jobs.find("last")

    second = dttui_here("restart")
    assert (second.returncode, "from 3 by 3" in second.stdout) == (100, True), second.stderr
    third = dttui_here("restart", "--set", "run.env.GOOD_FROM=2")
    assert (third.returncode, "from 6 by 6" in third.stdout) == (0, True), third.stderr
    newest = jobs.find("last")
    assert newest.job_id != before.job_id
    assert newest.read_launch().first_attempt == 2
    # No attempt writes into another's directory.
    written = sorted(str(path.relative_to(checkpoints)) for path in checkpoints.rglob("step-*"))
    assert written == [
        *(f"attempt-1/step-{step}" for step in (4, 5, 6)),
        *(f"attempt-2/step-{step}" for step in (7, 8, 9)),
        *(f"step-{step}" for step in (1, 2, 3)),
    ]


def test_a_job_that_was_restarted_may_be_started_again_by_itself(tmp_path: Path) -> None:
    job = _job(tmp_path, checkpoint={"dir": str(tmp_path / "checkpoints")})
    assert dttui_here("--demo", "--apply", job).returncode == 100
    settings = ["recovery.on_node_failure=restart", "recovery.max_restarts=1", "run.env.GOOD_FROM=2"]
    done = dttui_here("restart", *(word for setting in settings for word in ("--set", setting)))
    directory = jobs.find("last")
    assert done.returncode == 0, done.stderr
    told = [directory.logs(number, ONE) / "0.out" for number in (1, 2)]
    assert [path.read_text().split()[1] for path in told] == ["3", "6"]


def test_a_job_without_a_checkpoint_or_without_an_end_is_not_restarted(tmp_path: Path) -> None:
    job = shell_job(tmp_path, {ONE: 1, TWO: 1}, "exit 3")
    assert dttui_here("--demo", "--apply", job).returncode == 100
    shown = dttui_here("restart", "--dry-run")
    assert shown.returncode == 0
    assert "the newest complete checkpoint of test-job" in shown.stderr
    before = jobs.find("last").job_id
    done = dttui_here("restart")
    assert done.returncode == 3, done.stderr
    assert f"no host has a complete checkpoint of {before} to go on from" in done.stderr
    assert f"dttui again {before}" in done.stderr
    running = dttui_here("--demo", "--apply", shell_job(tmp_path, {ONE: 1}, "sleep 60"), "--detach")
    assert running.returncode == 0, running.stderr
    refused = dttui_here("restart")
    assert (refused.returncode, "is not over" in refused.stderr) == (2, True)
    assert dttui_here("stop", "last").returncode == 0
