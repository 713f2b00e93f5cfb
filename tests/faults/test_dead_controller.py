"""A job whose controller was killed: it is stopped all the same, and nothing of it stays on the hosts."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.jobs import JobDirectory
from dttui.launch.stop_request import stop_job
from tests.agent.conversation import processes_with
from tests.integration.headless import DEADLINE_S, dttui, shell_job, wait_for_state
from tests.processes import controller_of
from tests.processes import ended_agents as ended_agents
from tests.waiting import wait_until

ONE, TWO = "pytorch-dev-env", "llm-training-env"


def test_a_job_whose_controller_was_killed_is_stopped_gracefully_and_its_logs_go_on(tmp_path: Path) -> None:
    """Over within 120 s, last words and all; no process of the job is left."""
    directory = _orphan(tmp_path, "trap 'echo saved; exit 0' TERM; echo begun; while :; do sleep 0.1; done")
    stop_job(directory, force=False)
    _wait_for_end(directory)
    events = directory.read_events()
    assert (events[-1].kind, events[-1].data) == (EventKind.OUTCOME, {"state": "CANCELLED", "exit_code": 103})
    told = {event.node: event.data["state"] for event in events if event.kind is EventKind.NODE_STATE}
    assert told == {ONE: "stopped", TWO: "stopped"}
    assert processes_with(f"DTTUI_JOB_ID={directory.job_id}") == []
    assert (directory.logs(0, TWO) / "1.out").read_text() == "begun\nsaved\n"
    assert dttui("status", directory.job_id).returncode == 103


def test_a_forced_stop_needs_no_grace(tmp_path: Path) -> None:
    """Over within 120 s, whatever the ranks make of a signal; no process of the job is left."""
    directory = _orphan(tmp_path, "trap 'echo heard' TERM; echo begun; while :; do sleep 0.1; done")
    stop_job(directory, force=True)
    _wait_for_end(directory)
    assert directory.read_events()[-1].data == {"state": "CANCELLED", "exit_code": 103}
    assert processes_with(f"DTTUI_JOB_ID={directory.job_id}") == []


def _orphan(base: Path, command: str) -> JobDirectory:
    """Start a job on two environments and kill its controller once all ranks have printed a line."""
    directory = _running(base, command)
    os.kill(controller_of(directory.path), signal.SIGKILL)
    wait_until(lambda: not directory.has_controller(), "the controller to be gone")
    assert processes_with(f"DTTUI_JOB_ID={directory.job_id}")
    return directory


def _running(base: Path, command: str) -> JobDirectory:
    done = dttui("--demo", "--apply", shell_job(base, {ONE: 1, TWO: 1}, command), "--detach")
    assert done.returncode == 0, done.stderr
    directory = jobs.find(done.stdout.strip())
    wait_for_state(directory.job_id, "RUNNING")
    logs = [directory.logs(0, name) / f"{rank}.out" for rank, name in enumerate((ONE, TWO))]
    wait_until(
        lambda: all(path.exists() and path.read_text() == "begun\n" for path in logs), "the first lines", DEADLINE_S
    )
    return directory


def _wait_for_end(directory: JobDirectory) -> None:
    wait_until(lambda: directory.read_events()[-1].kind is EventKind.OUTCOME, "the job to end", DEADLINE_S)
