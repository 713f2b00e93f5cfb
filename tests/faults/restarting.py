"""Controllers that allow a job two restarts, and die before one of the records that they write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from dtagent.protocol.events import Event

from dttui.inventory.models import Inventory
from dttui.jobs import JobDirectory
from dttui.launch import submit as launch
from dttui.launch.local_plan import make_local_plan
from dttui.launch.submit import submit
from dttui.planning.submission import Submission
from dttui.spec import load_document
from tests.integration.headless import DEADLINE_S
from tests.waiting import wait_until

CONTROLLER = """
import functools, os, signal, sys
from dtagent.protocol.events import EventKind, JobState
from dttui.engine import controller, decision
from dttui.planning.recovery import RecoveryPolicy
from dttui.jobs.event_log import EventLog
from dttui.rpc.client import AgentClient

left, is_fake, add, looked_at = int(sys.argv.pop(1)), sys.argv.pop(1) == "fake", EventLog.add, set()

def fake(outcome, policy, history):
    again = outcome.state is JobState.FAILED and len(history) < 3
    return decision.Restart(delay_s=0.05) if again else decision.End()

def counted(log, kind, *arguments, **fields):
    global left
    cell = (kind, fields.get("attempt"), fields.get("node"))
    left -= kind is not EventKind.PREFLIGHT or cell not in looked_at
    looked_at.add(cell)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return add(log, kind, *arguments, **fields)

call = AgentClient.call

def called(client, method, *arguments, **options):
    if method == os.environ.get("DIES_AT_CALL"):
        os.kill(os.getpid(), signal.SIGKILL)
    return call(client, method, *arguments, **options)

AgentClient.call = called
EventLog.add = counted
decision.FIRST_DELAY_S = 0.05
given = {"policy": RecoveryPolicy(max_restarts=2)}
if is_fake:
    given = {"policy": RecoveryPolicy(max_restarts=2, no_retry_on=(3,)), "decide": fake}
controller.Controller = functools.partial(controller.Controller, **given)
sys.exit(controller.main(sys.argv[1:]))
"""


def begun(
    file: Path,
    inventory: Inventory,
    patch: pytest.MonkeyPatch,
    dies_at: int,
    *,
    decides: str = "real",
    dies_at_call: str = "",
) -> tuple[JobDirectory, subprocess.Popen[bytes]]:
    """Submit a job to a controller that dies before its record of this number, from 1; with 0 it does not.

    Of the cells of a preflight's board the first of each host is counted: on the others nothing hangs that does not on
    that.

    Args:
        file: the job.
        inventory: its hosts.
        patch: of the test.
        dies_at: number of the record.
        dies_at_call: what it asks agents for as it dies, of a record or besides.
        decides: `real`, or `fake`: another attempt after each failure, also of exit code 3, which the job's policy
            excludes.
    """
    started: list[subprocess.Popen[bytes]] = []

    def start(directory: JobDirectory, lock: int, **_options: bool) -> None:
        arguments = [str(dies_at), decides, str(directory.path), "--launch", f"--lock={lock}"]
        command = [sys.executable, "-c", CONTROLLER, *arguments]
        with directory.controller_log.open("ab") as log:
            env = {**os.environ, "DIES_AT_CALL": dies_at_call}
            started.append(subprocess.Popen(command, pass_fds=[lock], stdout=log, stderr=log, env=env))
        os.close(lock)

    with patch.context() as patched:
        patched.setattr(launch, "start_controller", start)
        submission = Submission(load_document(file).job, inventory, file.parent)
        directory = submit(submission, make_local_plan(submission), expects_client=False)
    return directory, started[0]


def ended(directory: JobDirectory, first: subprocess.Popen[bytes], *, decides: str = "real") -> list[Event]:
    """Wait for the first controller's end; have another one go on where that left work; return all events."""
    code = first.wait(DEADLINE_S)
    assert code in (0, -signal.SIGKILL), directory.controller_log.read_text()
    if not directory.is_over():
        arguments = [sys.executable, "-c", CONTROLLER, "0", decides, str(directory.path)]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
    wait_until(directory.is_over, f"the job to end: {directory.controller_log.read_text()}", DEADLINE_S)
    return directory.read_events()


def runs(directory: JobDirectory, names: list[str]) -> Callable[[int], list[int]]:
    """Return how often each rank of an attempt has run, by what it has printed."""

    def of(attempt: int) -> list[int]:
        paths = [directory.logs(attempt, name) / f"{rank}.out" for rank, name in enumerate(names)]
        return [path.read_text().count("ran\n") if path.exists() else 0 for path in paths]

    return of
