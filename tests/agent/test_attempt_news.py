"""What an agent tells of an attempt beside its end: who has met, which logs were cut, whether there are checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.conversation import DEADLINE_S, Conversation
from tests.waiting import wait_until

LISTENS = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
met = listener.accept()
listener.accept()
"""
CONNECTS = """
import pathlib, socket, time
while not (text := pathlib.Path("logs/0.out").read_text()).endswith("\\n"):
    time.sleep(0.05)
met = socket.create_connection(("127.0.0.1", int(text)))
print("met", flush=True)
met.recv(1)
"""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Conversation]:
    with Conversation(tmp_path / "root") as conversation:
        yield conversation


def start(agent: Conversation, job_id: str, *commands: list[str], env: dict[str, str] | None = None) -> Path:
    """Start commands in the attempt's own directory, and return that."""
    directory = Path(agent.prepare(job_id)["directory"])
    told = {"DTTUI_JOB_ID": job_id, "DTTUI_ATTEMPT": "0", "DTTUI_NODE_RANK": "0", **(env or {})}
    processes = [
        {"name": str(rank), "rank": rank, "argv": argv, "cwd": str(directory), "env": told}
        for rank, argv in enumerate(commands)
    ]
    agent.start(job_id, [*commands], processes=processes, log_cap_bytes=1 << 20)
    return directory


def test_of_each_rank_it_is_told_whether_it_has_connected_to_the_master_s_port(agent: Conversation) -> None:
    commands = [[sys.executable, "-c", LISTENS], [sys.executable, "-c", CONNECTS], ["sleep", "60"]]
    directory = start(agent, "meet", *commands)
    told = directory / "logs/1.out"
    wait_until(lambda: told.exists() and told.read_text() == "met\n", "rank 1 to connect", DEADLINE_S)
    port = int((directory / "logs/0.out").read_text())
    reply = agent.call("rendezvous", {"key": {"job_id": "meet", "attempt": 0}, "port": port})
    assert reply == {"is_listening": True, "is_connected": True, "ranks_connected": [1]}
    agent.stop("meet", force=True)
    agent.end_of("meet")


def test_a_log_that_passed_its_cap_is_in_the_status_and_stays_there(agent: Conversation) -> None:
    start(agent, "flood", ["sh", "-c", "head -c 6000000 /dev/zero; exec sleep 60"], ["sleep", "60"])
    cut = wait_until(lambda: agent.status("flood")["cut_logs"], "a log to be cut", DEADLINE_S)
    assert cut == ["0.out"]
    agent.stop("flood", force=True)
    assert agent.end_of("flood")["cut_logs"] == ["0.out"]


def test_whether_there_are_checkpoints_is_told_once_it_is_over_and_only_of_the_attempt_s_own_directory(
    agent: Conversation,
) -> None:
    written = "mkdir -p checkpoints/step-1; touch checkpoints/step-1/model.pt"
    start(agent, "writes", ["sh", "-c", written], env={"DTTUI_CHECKPOINT_DIR": "checkpoints"})
    start(agent, "does-not", ["mkdir", "-p", "checkpoints/step-1"], env={"DTTUI_CHECKPOINT_DIR": "checkpoints"})
    start(agent, "elsewhere", ["touch", "other/model.pt"], env={"DTTUI_CHECKPOINT_DIR": "other"})
    ends = {job: agent.end_of(job) for job in ("writes", "does-not", "elsewhere")}
    assert {status["exits"][0]["exit_code"] for status in ends.values()} == {0}
    told = {job: status.get("has_checkpoints") for job, status in ends.items()}
    assert told == {"writes": True, "does-not": False, "elsewhere": None}
