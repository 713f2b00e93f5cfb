"""dttui killed, or stopped by SIGSTOP with its controller and continued, and two that want the same GPUs at once."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import time
from pathlib import Path

from dttui import jobs
from dttui.errors import ExitCode
from dttui.jobs import JobDirectory
from tests.faults.leftovers import assert_nothing_is_left
from tests.integration.headless import DEADLINE_S, dttui, result_of, shell_job, start_dttui, wait_for_state
from tests.processes import controller_of, is_stopped
from tests.processes import ended_agents as ended_agents
from tests.waiting import wait_until

ONE, TWO = "pytorch-dev-env", "llm-training-env"
PAUSE_S = 65
"""Longer than a bridge waits for a word from its client, than a lease lasts, and than silence may go untold."""


def test_a_job_runs_on_while_dttui_and_its_controller_are_stopped_and_no_line_is_lost(tmp_path: Path) -> None:
    """The job ends by its own clock; its end is known within 30 s of the continuation. Nothing is left of it."""
    alone = tmp_path / "alone"
    command = f"""
        i=0; say() {{ while [ $i -lt $1 ]; do i=$((i+1)); echo line $i; done; }}
        say 10; until [ -e {alone} ]; do sleep 0.1; done; say 20; touch {alone}-$RANK
    """
    client = start_dttui("--demo", "--apply", shell_job(tmp_path, {ONE: 1, TWO: 1}, command), "--output", "json")
    directory = running_job()
    controller = controller_of(directory.path)
    stopped = (client.pid, controller)
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        alone.touch()
        wait_until(lambda: len(list(tmp_path.glob("alone-*"))) == 2, "the ranks to run on alone", DEADLINE_S)
        wait_until(lambda: time.monotonic() - began > PAUSE_S, "the pause to be over", PAUSE_S + 10)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    continued = time.monotonic()
    output, errors = client.communicate(timeout=DEADLINE_S)
    assert time.monotonic() - continued < 30
    assert client.returncode == 0, errors
    assert '"SUCCEEDED"' in output
    for rank, name in enumerate((ONE, TWO)):
        lines = (directory.logs(0, name) / f"{rank}.out").read_text().splitlines()
        assert lines == [f"line {number}" for number in range(1, 21)]
    assert_nothing_is_left(directory)


def test_a_job_outlives_its_terminal_and_is_stopped_from_another(tmp_path: Path) -> None:
    """The client is killed; the job runs on, and is stopped within 60 s. Nothing is left of it."""
    client = start_dttui("--demo", "--apply", shell_job(tmp_path, {ONE: 1, TWO: 1}, "while :; do sleep 0.1; done"))
    directory = running_job()
    client.kill()
    client.communicate()
    assert result_of(dttui("status", directory.job_id, "--output", "json"))["state"] == "RUNNING"
    assert directory.job_id in dttui("ps").stdout
    stopped = dttui("stop", directory.job_id, deadline_s=60.0)
    assert stopped.returncode == 0, stopped.stderr
    assert dttui("status", directory.job_id).returncode == 103
    assert_nothing_is_left(directory)


def test_a_stop_says_that_the_controller_is_halted_and_what_it_tells_to_do_stops_the_job(tmp_path: Path) -> None:
    """Told within 60 s, by a stop and by the doctor; each of the two remedies stops a job within 60 s of it."""
    for remedy in ("-CONT", "-9"):
        (tmp_path / remedy).mkdir()
        path = shell_job(tmp_path / remedy, {ONE: 1, TWO: 1}, "while :; do sleep 0.1; done")
        assert dttui("--demo", "--apply", path, "--detach").returncode == 0
        directory = jobs.find("last")
        controller = controller_of(directory.path)
        os.kill(controller, signal.SIGSTOP)
        wait_until(functools.partial(is_stopped, controller), "it to stand still", DEADLINE_S)
        try:
            vain = dttui("stop", directory.job_id, deadline_s=60.0)
            assert vain.returncode == ExitCode.NOT_FINISHED
            assert (
                f"the controller of job {directory.job_id}, process {controller}, is halted by a signal" in vain.stderr
            )
            assert f"`kill -CONT {controller}`" in vain.stderr
            assert f"`kill -9 {controller}`, and then `dttui stop {directory.job_id}`" in vain.stderr
            os.utime(directory.lock, (0, 0))  # As if it were long ago.
            assert f"kill -CONT {controller}" in dttui("doctor", "--demo", deadline_s=60.0).stdout
        finally:
            os.kill(controller, signal.SIGCONT if remedy == "-CONT" else signal.SIGKILL)
        if remedy == "-9":
            stopped = dttui("stop", directory.job_id, deadline_s=60.0)
            assert stopped.returncode == 0, stopped.stderr
        wait_until(directory.is_over, "the job to end", 60.0)
        assert dttui("status", directory.job_id).returncode == ExitCode.CANCELLED
        assert_nothing_is_left(directory)


def test_of_two_dttui_that_want_the_same_gpus_at_once_one_runs_and_the_other_says_who_has_them(tmp_path: Path) -> None:
    """Within 60 s; of the loser no rank ever ran, and nothing of either is left."""
    clients: list[subprocess.Popen[str]] = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        touch = f"touch {tmp_path / name}/ran-$RANK"
        hold = f'{touch}; until [ -e "{tmp_path}/enough" ]; do sleep 0.1; done'
        job = shell_job(tmp_path / name, {ONE: 2, TWO: 4}, hold)  # All that they have.
        clients.append(start_dttui("--demo", "--apply", job, "--output", "json"))
    try:
        wait_until(lambda: any(client.poll() is not None for client in clients), "one to be refused", 60.0)
        loser = next(index for index, client in enumerate(clients) if client.poll() is not None)
        winner = clients[1 - loser]
        ran = tmp_path / ("first", "second")[1 - loser]
        wait_until(lambda: len(list(ran.glob("ran-*"))) == 6, "the other one to run", 60.0)
    finally:
        (tmp_path / "enough").touch()
        results = [client.communicate(timeout=DEADLINE_S) for client in clients]
    assert clients[loser].returncode in (3, 5), results[loser]
    assert winner.returncode == 0, results[1 - loser]
    assert list((tmp_path / ("first", "second")[loser]).glob("ran-*")) == []
    told = subprocess.CompletedProcess([], clients[loser].returncode, *results[loser])
    assert result_of(told)["reason"]
    for summary in jobs.list_jobs():
        assert_nothing_is_left(jobs.find(summary.job_id))


def running_job() -> JobDirectory:
    """Wait until the only job there is runs; return it."""
    (found,) = wait_until(jobs.list_jobs, "the job's directory", DEADLINE_S)
    directory = jobs.find(found.job_id)
    wait_for_state(directory.job_id, "RUNNING")
    return directory
