"""Daemon and supervisor killed at every step of prepare and start, and in the middle of a record of the journal."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dtagent.locations import AttemptFiles
from dtagent.supervision import journal

from tests.agent.conversation import Conversation, processes_with
from tests.waiting import wait_until

DYING = Path(__file__).with_name("dying_agent.py")
COMMAND = ["sh", "-c", 'mktemp "$0/XXXXXX" >/dev/null; exec sleep 300']
DEADLINE_S = 30.0


@contextlib.contextmanager
def dying_daemon(directory: Path, **moments: int) -> Iterator[Path]:
    """Run a daemon that will be killed; yield its root."""
    root = directory / "root"
    interpreter = directory / "interpreter"
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} -I {DYING} "$@"\n')
    interpreter.chmod(0o755)
    env = {**os.environ, "DYING_LOG": str(directory / "steps"), "DYING_INTERPRETER": str(interpreter)}
    env |= {f"DYING_{name.upper()}": str(number) for name, number in moments.items()}
    command = [sys.executable, "-I", str(DYING), "daemon", "--root", str(root), "--idle-exit", "60"]
    daemon = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: list(root.glob("*.sock")) or daemon.poll() is not None, "the daemon to listen", DEADLINE_S)
        yield root
    finally:
        daemon.kill()
        daemon.wait(DEADLINE_S)


def suppress_its_death() -> contextlib.AbstractContextManager[None]:
    """Go on where the daemon dies in the middle of a call."""
    return contextlib.suppress(BrokenPipeError, ConnectionError, json.JSONDecodeError)


def launch(agent: Conversation, job_id: str, runs: Path) -> tuple[bool, bool]:
    """Prepare and start, as a controller does; return which of the two was acknowledged."""
    acknowledged = []
    with suppress_its_death():
        agent.prepare(job_id)
        acknowledged.append("prepare")
        agent.start(job_id, [[*COMMAND, str(runs)]])
        acknowledged.append("start")
    return "prepare" in acknowledged, "start" in acknowledged


def end(root: Path, job_id: str) -> Any:
    """End the attempt, telling a daemon that dies of it again; nothing of it may run afterwards."""
    for _twice in range(2):
        with Conversation(root, keep_daemon=True) as agent, suppress_its_death():
            agent.stop(job_id, force=True)
            status = agent.end_of(job_id)
            agent.call("shutdown")
            assert processes_with(f"DTTUI_JOB_ID={job_id}\0") == []
            return status
    raise AssertionError("the daemon that was not to be killed died too")


def steps_of_a_launch(directory: Path) -> dict[str, int]:
    """Return what the daemon changes on disk from prepare to the end, each kind of step with the first of its kind."""
    (directory / "runs").mkdir(parents=True)
    with dying_daemon(directory) as root:
        with Conversation(root, keep_daemon=True) as agent:
            assert launch(agent, "whole", directory / "runs") == (True, True)
        end(root, "whole")
    kinds = [re.sub(r"(?<=os.mkdir ).*|(?:\.\d+)+$|(?<=Popen ).*", "", step) for step in steps_in(directory)]
    return {kind: number for number, kind in reversed(list(enumerate(kinds, 1)))}


def steps_in(directory: Path) -> list[str]:
    return (directory / "steps").read_text().splitlines()


def test_a_daemon_killed_at_each_step_of_a_launch_keeps_its_word_and_starts_nothing_twice(tmp_path: Path) -> None:
    """Each step within 30 s; afterwards no process of the job, and the next daemon ends when it is told to."""
    steps = steps_of_a_launch(tmp_path / "whole")
    assert {"os.mkdir ", "os.rename .prepared.json", "os.rename .start.json", "subprocess.Popen "} <= set(steps)
    for step, number in steps.items():
        job_id, directory = f"killed-{number}", tmp_path / str(number)
        runs = directory / "runs"
        runs.mkdir(parents=True)
        with dying_daemon(directory, daemon_at=number) as root:
            with Conversation(root, keep_daemon=True) as first:
                was_prepared, was_started = launch(first, job_id, runs)
            with Conversation(root, keep_daemon=True) as second:
                if was_prepared:  # What was acknowledged is known to the next one.
                    assert second.status(job_id)["state"] in ("prepared", "running", "lost"), step
                launch(second, job_id, runs)
            state = end(root, job_id)["state"]
        assert len(steps_in(directory)) >= number, step
        if was_started:
            assert state == "ended", step
        assert len(list(runs.iterdir())) <= 1, step


@pytest.mark.parametrize("record", [1, 2, 3])
def test_a_supervisor_killed_in_the_middle_of_a_record_leaves_nothing_and_its_earlier_records_stand(
    tmp_path: Path, record: int
) -> None:
    """Records of a start: the state, the process, the end. Told within 30 s; no process of the job is left."""
    runs = tmp_path / "runs"
    runs.mkdir()
    with dying_daemon(tmp_path, supervisor_at=record) as root, Conversation(root) as agent:
        job_id = f"torn-{record}"
        assert launch(agent, job_id, runs) == (True, True)
        files = AttemptFiles.of(root, job_id, 0)
        wait_until(lambda: files.journal.exists() and files.journal.stat().st_size, "a record to begin", DEADLINE_S)
        if record == 3:
            wait_until(lambda: list(runs.iterdir()), "the rank to run", DEADLINE_S)
            agent.stop(job_id, force=True)
        status = agent.end_of(job_id)
        assert (status["state"], status["reason"]) == ("lost", "the supervisor on this host died")
        assert processes_with(f"DTTUI_JOB_ID={job_id}\0") == []
        told = [item["event"] for item in journal.read(files.journal)]
        assert told == [*("state", "process", "exit")[: record - 1], "state"]
        agent.start(job_id, [[*COMMAND, str(runs)]])  # Asked again, as a controller that had no answer does.
        assert agent.status(job_id)["state"] == "lost"
        assert len(list(runs.iterdir())) <= 1
