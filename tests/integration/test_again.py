"""A job once more: as it was, on the hosts as they were known, or with other values."""

from __future__ import annotations

from pathlib import Path

import yaml

from dttui import jobs
from tests.integration.headless import dttui_here, shell_job
from tests.processes import ended_agents as ended_agents

ONE = "pytorch-dev-env"


def test_a_job_is_run_once_more_as_it_was_and_with_another_value(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "word").write_text("old\n")
    job = shell_job(tmp_path, {ONE: 1}, "echo word $WORD $(cat word)", workdir="work", env={"WORD": "1"})
    first = dttui_here("--demo", "--apply", job)
    assert (first.returncode, "word 1 old" in first.stdout) == (0, True), first.stderr
    job.unlink()

    second = dttui_here("again")
    assert (second.returncode, "word 1 old" in second.stdout) == (0, True), second.stderr
    assert "ran with" not in second.stderr

    (work / "word").write_text("new\n")
    third = dttui_here("again", "last", "--set", "run.env.WORD=2", "--set", "name=other")
    assert (third.returncode, "word 2 new" in third.stdout) == (0, True), third.stderr
    assert "⚠ these files are not what" in third.stderr
    assert third.stderr.splitlines()[0].endswith("ran with: word")
    assert len(jobs.list_jobs()) == 3
    newest = jobs.find("other")
    assert yaml.safe_load(newest.document.read_text())["distributed_training"]["run"]["env"] == {"WORD": "2"}


def test_what_would_be_run_once_more_is_shown_and_a_wrong_value_starts_nothing(tmp_path: Path) -> None:
    job = shell_job(tmp_path, {ONE: 1}, "true")
    assert dttui_here("--demo", "--apply", job).returncode == 0
    shown = dttui_here("again", "--dry-run", "--set", "run.env.A=b")
    assert (shown.returncode, "A=b" in shown.stdout) == (0, True), shown.stderr
    wrong = dttui_here("again", "--set", "run.envs.A=b")
    assert wrong.returncode == 2
    assert 'distributed_training.run.envs: unknown key; did you mean "env"?' in wrong.stderr
    assert dttui_here("again", "--set", "cluster.nodes.0.id=nowhere").returncode == 2
    assert len(jobs.list_jobs()) == 1
