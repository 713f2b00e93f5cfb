"""A controller that is started before its job is known: it takes the job, and ends by itself where none comes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dttui import jobs
from dttui.launch import starting
from dttui.launch.starting import SPARE, SpareController, start_controller
from tests.integration.headless import dttui, result_of, shell_job
from tests.processes import ended_agents as ended_agents
from tests.processes import parent_of, processes_like
from tests.waiting import wait_until

DEADLINE_S = 60.0
MODULE = "dttui.engine"
HOLDS = """
import time
from dttui.launch.starting import SpareController
spare = SpareController()
print("started", flush=True)
time.sleep(300)
"""


def children(parent: int) -> list[int]:
    """Return the spare controllers that a process has started."""
    return [pid for pid in processes_like(MODULE, SPARE) if parent_of(pid) == parent]


@pytest.fixture
def others() -> set[int]:
    """Spare controllers of this process that are ending: another test on this worker needed them."""
    return {*children(os.getpid())}


def new_child(others: set[int]) -> int:
    """Wait until this process has started a spare controller; return it."""
    (found,) = wait_until(lambda: {*children(os.getpid())} - others, "it to start", DEADLINE_S)
    return found


def test_apply_gives_its_job_to_the_controller_that_it_started_ahead(tmp_path: Path) -> None:
    done = dttui("--demo", "--apply", shell_job(tmp_path, {"pytorch-dev-env": 1}, "true"), "--output", "json")
    assert done.returncode == 0, done.stderr
    directory = jobs.find(result_of(done)["job_id"])
    assert directory.is_over()
    assert directory.controller_log.read_text() == ""
    wait_until(lambda: not processes_like(MODULE, str(directory.path)), "the controller to end", DEADLINE_S)


def test_it_ends_where_the_job_is_refused(others: set[int]) -> None:
    with SpareController():
        spare = new_child(others)
    wait_until(lambda: spare not in processes_like(MODULE), "it to end", DEADLINE_S)


def test_it_ends_where_its_client_is_killed() -> None:
    client = subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE)
    assert client.stdout is not None
    with client.stdout:
        assert client.stdout.readline() == b"started\n"
    (spare,) = wait_until(lambda: children(client.pid), "it to start", DEADLINE_S)
    client.send_signal(signal.SIGKILL)
    client.wait(DEADLINE_S)
    wait_until(lambda: spare not in processes_like(MODULE), "it to end", DEADLINE_S)


@pytest.mark.parametrize("dies", ["never", "before", "with the job in flight"])
def test_a_job_gets_a_controller_whether_or_not_the_spare_is_still_there(
    dies: str, others: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = jobs.create("bench")
    lock = directory.claim()
    assert lock is not None
    with SpareController() as spare:
        pid = new_child(others)

        def die() -> None:
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not Path(f"/proc/{pid}").exists(), "it to be gone", DEADLINE_S)

        def send_fds(*arguments: Any) -> None:
            send(*arguments)
            die()

        if dies == "before":
            die()
        elif dies != "never":
            os.kill(pid, signal.SIGSTOP)
            send = socket.send_fds
            monkeypatch.setattr(socket, "send_fds", send_fds)
        start_controller(directory, lock, launches=True, spare=spare)
    # There is no launch.json: the controller says so in the job's log and events, and ends.
    wait_until(directory.is_over, "the controller to run", DEADLINE_S)
    wait_until(lambda: not processes_like(MODULE, str(directory.path)), "it to end", DEADLINE_S)
    assert "launch.json" in directory.controller_log.read_text()


def test_one_that_is_too_slow_to_take_a_job_never_takes_it(others: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "TAKING_S", 0.1)
    with SpareController() as spare, open(os.devnull) as nothing:
        pid = new_child(others)
        os.kill(pid, signal.SIGSTOP)
        directory = jobs.create("bench")
        assert not spare.take([str(directory.path), "--launch"], nothing.fileno(), nothing.fileno())
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: pid not in processes_like(MODULE), "it to end", DEADLINE_S)
    assert not directory.is_over()
    assert not directory.controller_log.exists()
