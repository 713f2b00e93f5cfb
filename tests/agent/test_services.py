"""Processes that only serve others: who ends them, when, and what their end counts for."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.jobs import ProcessSpec

from tests.agent.conversation import Conversation, processes_with
from tests.waiting import wait_until

SERVE = "trap 'echo bye; exit 7' TERM; echo serves; while :; do sleep 0.05; done"
"""Ends on TERM with a code that is no good end."""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Conversation]:
    with Conversation(tmp_path / "root") as conversation:
        yield conversation


def process(job: str, name: str, command: str, *, rank: int | None = None, service: bool = False) -> dict[str, Any]:
    env = {"DTTUI_JOB_ID": job, "DTTUI_ATTEMPT": "0", "DTTUI_NODE_RANK": "0"}
    argv = ["sh", "-c", command]
    return {"name": name, "rank": rank, "argv": argv, "cwd": "/", "env": env, "is_service": service}


def run(agent: Conversation, job: str, *processes: dict[str, Any], **more: Any) -> Path:
    directory = Path(agent.prepare(job)["directory"])
    ranks = [item["rank"] for item in processes if item["rank"] is not None]
    agent.start(job, [], processes=list(processes), ranks=ranks, **more)
    return directory


def serves(directory: Path, name: str = "service") -> None:
    path = directory / "logs" / f"{name}.out"
    wait_until(lambda: path.exists() and b"serves" in path.read_bytes(), "the service to run")


def finish(agent: Conversation, job: str) -> None:
    agent.call("stop", {"key": {"job_id": job, "attempt": 0}, "services_only": True})


def ends(status: dict[str, Any]) -> dict[str, int]:
    """Return each process's exit code, or its signal below zero."""
    return {item["name"]: -item["signal"] if item.get("signal") else item["exit_code"] for item in status["exits"]}


def wait_for(directory: Path) -> str:
    return f"while [ ! -e {directory}/go ]; do sleep 0.02; done"


def test_the_greeting_says_that_services_are_ended(agent: Conversation) -> None:
    assert agent.call("hello", {"versions": [1]})["ends_services"] is True


def test_a_service_is_ended_once_all_ranks_have_ended_well_and_its_end_counts_as_good(agent: Conversation) -> None:
    directory = Path(agent.prepare("mixed")["directory"])
    service = process("mixed", "service-store", SERVE, service=True)
    ranks = [process("mixed", "0", wait_for(directory), rank=0), process("mixed", "1", "true", rank=1)]
    agent.start("mixed", [], processes=[service, *ranks], ranks=[0, 1])
    serves(directory, "service-store")
    (directory / "go").touch()
    status = agent.end_of("mixed")
    assert (status["state"], status.get("reason", "")) == ("ended", "")
    assert ends(status) == {"0": 0, "1": 0, "service-store": 0}
    assert agent.streams("mixed")["service-store.out"].splitlines()[-1] == b"bye"
    assert processes_with("DTTUI_JOB_ID=mixed") == []


def test_a_service_that_ignores_term_is_killed_after_the_grace_period(agent: Conversation) -> None:
    service = process("deaf", "service", "trap '' TERM; echo serves; while :; do sleep 0.05; done", service=True)
    directory = Path(agent.prepare("deaf")["directory"])
    rank = process("deaf", "0", wait_for(directory), rank=0)
    agent.start("deaf", [], processes=[service, rank], ranks=[0], grace_s=0.3)
    serves(directory)
    (directory / "go").touch()
    status = agent.end_of("deaf")
    assert (status["state"], ends(status)) == ("ended", {"0": 0, "service": 0})


@pytest.mark.parametrize(("command", "end"), [("exit 3", 3), ("kill -SEGV $$", -signal.SIGSEGV)])
def test_a_service_that_dies_before_the_ranks_fails_the_node(agent: Conversation, command: str, end: int) -> None:
    service = process("dies", "service", command, service=True)
    run(agent, "dies", process("dies", "0", "exec sleep 300", rank=0), service)
    status = agent.end_of("dies")
    assert status["reason"] == "a process failed"
    assert list(ends(status).items()) == [("service", end), ("0", -signal.SIGTERM)]


def test_a_service_that_ends_well_by_itself_ends_nothing_else(agent: Conversation) -> None:
    directory = Path(agent.prepare("early")["directory"])
    processes = [process("early", "service", "true", service=True), process("early", "0", wait_for(directory), rank=0)]
    agent.start("early", [], processes=processes, ranks=[0])
    wait_until(lambda: ends(agent.status("early")) == {"service": 0}, "the service to end")
    assert agent.status("early")["state"] == "running"
    (directory / "go").touch()
    assert agent.end_of("early")["state"] == "ended"


def test_a_failing_rank_ends_the_services_too(agent: Conversation) -> None:
    directory = Path(agent.prepare("fails")["directory"])
    rank = process("fails", "0", f"{wait_for(directory)}; exit 3", rank=0)
    agent.start("fails", [], processes=[process("fails", "service", SERVE, service=True), rank], ranks=[0])
    serves(directory)
    (directory / "go").touch()
    status = agent.end_of("fails")
    assert status["reason"] == "a process failed"
    assert list(ends(status).items()) == [("0", 3), ("service", 7)]


def test_a_node_that_only_serves_runs_until_it_is_told_that_all_others_are_done(agent: Conversation) -> None:
    directory = run(agent, "serving", process("serving", "3", SERVE, rank=3, service=True))
    serves(directory, "3")
    wait_until(lambda: agent.status("serving")["ranks_started"] == [3], "the rank to count as started")
    finish(agent, "serving")
    status = agent.end_of("serving")
    assert (status["state"], status.get("reason", ""), ends(status)) == ("ended", "", {"3": 0})
    assert (directory / "stop").read_text() == "served"


def test_what_a_rank_that_served_records_of_its_end_is_no_failure(agent: Conversation) -> None:
    directory = Path(agent.prepare("recorded")["directory"])
    script = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit('asked'))\nprint('serves', flush=True)\n"
    argv = [sys.executable, f"{directory}/payload/rank.py", f"{directory}/ps.py"]
    ps = {**process("recorded", "3", "", rank=3, service=True), "argv": argv}
    ps["env"].update(RANK="3", DTTUI_LOGS=f"{directory}/logs")
    files = [{"path": "ps.py", "text": script + "while True: time.sleep(60)\n"}]
    agent.start("recorded", [], processes=[ps], ranks=[3], files=files)
    serves(directory, "3")
    finish(agent, "recorded")
    status = agent.end_of("recorded")
    assert (directory / "failures" / "3.json").exists()
    assert (ends(status), status["failures"]) == ({"3": 0}, [])


def test_the_word_that_services_are_done_does_nothing_while_something_else_runs(agent: Conversation) -> None:
    directory = Path(agent.prepare("busy")["directory"])
    processes = [process("busy", "service", SERVE, service=True), process("busy", "0", wait_for(directory), rank=0)]
    agent.start("busy", [], processes=processes, ranks=[0])
    serves(directory)
    finish(agent, "busy")
    assert (agent.status("busy")["state"], len(processes_with("DTTUI_JOB_ID=busy")) >= 2) == ("running", True)
    (directory / "go").touch()
    assert ends(agent.end_of("busy")) == {"0": 0, "service": 0}


def test_a_stop_is_a_stop_for_a_node_that_only_serves_and_beats_the_word_that_it_is_done(agent: Conversation) -> None:
    ignoring = "trap '' TERM; echo serves; while :; do sleep 0.05; done"
    directory = run(agent, "stopped", process("stopped", "service", ignoring, service=True), grace_s=600)
    serves(directory)
    agent.stop("stopped")
    finish(agent, "stopped")
    assert (directory / "stop").read_text() == "stop"
    agent.stop("stopped", force=True)
    status = agent.end_of("stopped")
    assert (status["reason"], ends(status)) == ("stopped", {"service": -signal.SIGKILL})


def test_a_new_daemon_ends_the_services_of_one_that_was_killed(tmp_path: Path) -> None:
    with Conversation(tmp_path / "root", keep_daemon=True) as first:
        daemon = first.call("hello", {"versions": [1]})["pid"]
        directory = run(first, "adopted", process("adopted", "service", SERVE, service=True))
        serves(directory)
        kill(daemon)
    with Conversation(tmp_path / "root") as second:
        assert second.call("hello", {"versions": [1]})["pid"] != daemon
        assert second.status("adopted")["state"] == "running"
        finish(second, "adopted")
        assert ends(second.end_of("adopted")) == {"service": 0}


def test_a_spec_from_an_older_client_is_no_service() -> None:
    assert ProcessSpec("0", ["true"], "/").is_service is False


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the daemon to be gone")
