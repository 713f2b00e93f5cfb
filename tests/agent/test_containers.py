"""Containers of an engine with a daemon: whatever dies first, none is left when the attempt has ended."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.conversation import Conversation, processes_with
from tests.fake_engine import Engine, engine
from tests.processes import processes_like
from tests.waiting import wait_until

MARK = "LITTLE_MARK=container"
SERVE = "trap 'echo bye; exit 0' TERM; echo runs; while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def docker() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory(prefix="dttui-") as directory, engine(Path(directory) / "bin") as found:
        yield found


@pytest.fixture(scope="module")
def agent(docker: Engine) -> Iterator[Conversation]:
    env = {**os.environ, "PATH": f"{docker.directory}:{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory(prefix="dttui-") as root, Conversation(Path(root) / "root", env=env) as found:
        yield found


def run(agent: Conversation, job: str, command: str = SERVE, image: str = "torch:2", **more: Any) -> Path:
    """Start a rank in a container, and wait until it says that it runs."""
    directory = Path(agent.prepare(job)["directory"])
    marks = {"DTTUI_JOB_ID": job, "DTTUI_ATTEMPT": "0", "DTTUI_NODE_RANK": "0"}
    argv = ["docker", "run", "--rm", f"--name=dttui-{job}-0-0-0", *(f"--env={name}" for name in marks)]
    argv += [f"--env={MARK}-{job}", image, "sh", "-c", command]
    removal = ["docker", "rm", "--force", f"dttui-{job}-0-0-0"]
    process = {"name": "0", "rank": 0, "argv": argv, "cwd": "/", "env": marks, "removal": removal}
    agent.start(job, [], processes=[process], ranks=[0], **more)
    log = directory / "logs" / "0.out"
    wait_until(lambda: log.exists() and b"runs" in log.read_bytes(), "the container to run")
    return directory


def nothing_is_left(docker: Engine, job: str) -> None:
    assert docker.running() == []
    assert processes_with(f"{MARK}-{job}") == []


def supervisor_of(directory: Path) -> int:
    return int(json.loads((directory / "supervisor.json").read_text())["pid"])


def client_of(job: str) -> int:
    (found,) = processes_like(f"--name=dttui-{job}-0-0-0")
    return found


def test_the_greeting_says_that_containers_are_removed(agent: Conversation) -> None:
    assert agent.call("hello", {"versions": [1]})["removes_containers"] is True
    assert agent.prepare("greeted")["user_ids"] == f"{os.getuid()}:{os.getgid()}"


def test_one_that_ends_well_ends_the_attempt_well_without_a_word_about_its_removal(
    agent: Conversation, docker: Engine
) -> None:
    run(agent, "well", "echo runs")
    status = agent.end_of("well")
    assert (status["state"], [item["exit_code"] for item in status["exits"]], status["warnings"]) == ("ended", [0], [])
    nothing_is_left(docker, "well")


def test_its_exit_code_is_that_of_the_rank(agent: Conversation) -> None:
    run(agent, "code", "echo runs; exit 7")
    status = agent.end_of("code")
    assert ([item["exit_code"] for item in status["exits"]], status["reason"]) == ([7], "a process failed")


def test_a_stop_reaches_what_runs_in_it(agent: Conversation, docker: Engine) -> None:
    run(agent, "stopped")
    agent.stop("stopped")
    assert agent.end_of("stopped")["state"] == "ended"
    assert agent.streams("stopped")["0.out"].splitlines() == [b"runs", b"bye"]
    nothing_is_left(docker, "stopped")


@pytest.mark.parametrize("image", ["torch:2", "hidden:1"])
def test_one_that_ignores_a_stop_is_removed_also_where_its_processes_bear_no_mark(
    agent: Conversation, docker: Engine, image: str
) -> None:
    job = f"deaf-{image[:5]}"
    run(agent, job, "trap '' TERM; echo runs; while :; do sleep 0.05; done", image, grace_s=0.3)
    agent.stop(job)
    assert agent.end_of(job)["state"] == "ended"
    nothing_is_left(docker, job)


def test_a_forced_stop_removes_it_at_once(agent: Conversation, docker: Engine) -> None:
    run(agent, "forced", image="hidden:1")
    agent.stop("forced", force=True)
    assert agent.end_of("forced")["state"] == "ended"
    nothing_is_left(docker, "forced")


@pytest.mark.parametrize("image", ["torch:2", "hidden:1"])
def test_one_whose_client_is_killed_does_not_go_on(agent: Conversation, docker: Engine, image: str) -> None:
    job = f"client-{image[:5]}"
    run(agent, job, image=image)
    os.kill(client_of(job), signal.SIGKILL)
    status = agent.end_of(job)
    assert [item["signal"] for item in status["exits"]] == [signal.SIGKILL]
    nothing_is_left(docker, job)


@pytest.mark.parametrize("image", ["torch:2", "hidden:1", "lingering:1"])
def test_one_whose_supervisor_is_killed_is_removed_by_the_daemon(
    agent: Conversation, docker: Engine, image: str
) -> None:
    job = f"orphan-{image[:5]}"
    directory = run(agent, job, image=image)
    os.kill(supervisor_of(directory), signal.SIGKILL)
    status = agent.end_of(job)
    assert (status["state"], status["reason"]) == ("lost", "the supervisor on this host died")
    assert status["warnings"] == []
    nothing_is_left(docker, job)


def test_an_engine_that_cannot_remove_it_is_told_of(agent: Conversation) -> None:
    agent.prepare("stuck")
    removal = ["sh", "-c", "echo the daemon sleeps >&2; exit 1"]
    process = {"name": "0", "rank": 0, "argv": ["true"], "cwd": "/", "env": {}, "removal": removal}
    agent.start("stuck", [], processes=[process], ranks=[0])
    (warning,) = agent.end_of("stuck")["warnings"]
    assert warning.startswith("the container of 0 may still be there, sh -c")
    assert warning.endswith(": the daemon sleeps")


def test_it_tells_what_the_engine_has(agent: Conversation) -> None:
    asked = {image: agent.call("image", {"engine": "docker", "image": image}) for image in ("torch:2", "torch:3")}
    assert (asked["torch:2"]["has_image"], asked["torch:2"]["image_id"]) == (True, "sha256:0123456789abcdef")
    assert asked["torch:3"]["has_image"] is False
    assert agent.call("image", {"engine": "apptainer", "image": "/a.sif"})["has_engine"] is False
    assert agent.ask("image", {"engine": "sh", "image": "x"})["error"]["message"] == "not a container engine: 'sh'"
