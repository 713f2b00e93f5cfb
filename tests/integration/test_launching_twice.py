"""Launching the same thing again, from the command line: files that did not change stay, and a running job is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.integration.headless import DEADLINE_S, dttui_here, result_of, shell_job, start_dttui, wait_for_state
from tests.processes import ended_agents as ended_agents

ONE, TWO = "pytorch-dev-env", "llm-training-env"


def sent(job: Path) -> dict[str, Any]:
    """Run a job to its end; return what was told of its files."""
    done = dttui_here("--demo", "--apply", job, "--output", "jsonl")
    assert done.returncode == 0, done.stdout + done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (found,) = [event for event in events if "files" in event["data"]]
    return {**found["data"], "message": found["message"]}


def test_a_second_launch_sends_no_file_and_a_third_what_has_changed(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text("x = 1\n")
    (work / "data.bin").write_bytes(b"z" * 3_000_000)
    job = shell_job(tmp_path, {ONE: 1, TWO: 1}, "grep -q 'x = [12]' train.py && test -s data.bin", workdir="work")
    first = sent(job)
    assert (first["sent_bytes"], first["files"]) == (2 * 3_000_006, 2)
    assert first["message"] == "2 files for the job; sent 6 MB to 2 of 2 hosts"
    second = sent(job)
    assert second["sent_bytes"] == 0
    assert second["message"] == "2 files for the job; the hosts had all their content already"
    (work / "train.py").write_text("x = 2\n")
    assert sent(job)["sent_bytes"] == 2 * 6


def test_the_same_job_applied_while_it_runs_is_attached_to(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text("x = 1\n")
    job = shell_job(tmp_path, {ONE: 1}, "while [ ! -e stop ]; do sleep 0.1; done", workdir="work")
    first = dttui_here("--demo", "--apply", job, "--detach")
    assert first.returncode == 0, first.stderr
    job_id = first.stdout.strip()
    wait_for_state(job_id, "RUNNING")
    again = dttui_here("--demo", "--apply", job, "--detach")
    assert (again.returncode, again.stdout.strip()) == (0, job_id), again.stderr
    assert "this job runs already: attached to it. --new starts another one" in again.stderr
    assert "other files" not in again.stderr
    (work / "train.py").write_text("x = 2\n")
    job.write_text(f"# a comment\n{job.read_text()}")
    following = start_dttui("--demo", "--apply", job, "--output", "json")
    assert following.stderr is not None
    assert any("runs with other files than are here now: train.py" in line for line in following.stderr)
    another = dttui_here("--demo", "--apply", job, "--new", "--detach")
    assert another.returncode == 0, another.stderr
    assert another.stdout.strip() not in ("", job_id)
    assert dttui_here("stop", another.stdout.strip(), "--force").returncode == 0
    assert dttui_here("stop", job_id, "--force").returncode == 0
    out, _err = following.communicate(timeout=DEADLINE_S)
    assert following.returncode == 103
    assert json.loads(out)["job_id"] == job_id
    assert result_of(dttui_here("status", job_id, "--output", "json"))["state"] == "CANCELLED"
