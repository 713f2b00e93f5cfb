"""A start in two phases that goes wrong half-way, with real agents: all nodes run, or all that answer are clean."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.jobs import NodeState

from dttui.engine import start as gang_start
from dttui.engine.nodes import node_start
from dttui.errors import HostUnreachableError, LaunchError
from dttui.rpc.client import AgentClient
from tests.agent.conversation import Conversation, processes_with
from tests.integration.gangs import ONE, THREE, TWO, Stopped, TestGang, daemon_of
from tests.integration.sshd import free_port
from tests.processes import ended_agents as ended_agents
from tests.waiting import wait_until

STARTS = ("start", "start_packed")
COUNT = {"command": ["sh", "-c", 'echo "$RANK" >> "$DTTUI_CHECKPOINT_DIR/starts"; exec sleep 60']}
ROLLED_BACK_WITHIN_S = 40
"""Of which 16 for a host that does not answer: to be given up, and to be left out of the rollback."""


@pytest.fixture
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_start, "PREPARE_DEADLINE_S", 8.0)
    monkeypatch.setattr(node_start, "START_DEADLINE_S", 8.0)
    monkeypatch.setattr(gang_start, "ROLLBACK_DEADLINE_S", 8.0)
    monkeypatch.setattr(gang_start, "FAILURE_GRACE_S", 0.5)
    monkeypatch.setattr(gang_start, "PROGRESS_S", 0.3)


def starts(gang: TestGang, name: str) -> list[str]:
    """Return what the ranks of a node wrote each time they were started."""
    directory = Path(gang.nodes[name].environment.agent_root or "") / "jobs" / gang.directory.job_id / "0"
    found = directory / "checkpoints/starts"
    return found.read_text().split() if found.exists() else []


async def test_a_node_that_hangs_in_prepare_is_lost_and_the_others_are_clean(
    tmp_path: Path, short_deadlines: None
) -> None:
    """Its daemon is stopped; told within 40 s at a deadline of 8 s. No process of the job is left."""
    gang = TestGang(tmp_path, {ONE: 1, TWO: 1, THREE: 1}, run=COUNT)
    await gang.connect()
    with Stopped(await daemon_of(gang, TWO)):
        began = time.monotonic()
        with pytest.raises(LaunchError, match=f"{TWO}: no answer within 8 s; what runs on {TWO} is unknown") as caught:
            await gang.start()
        assert time.monotonic() - began < ROLLED_BACK_WITHIN_S
        await gang.close()
    assert int(caught.value.exit_code) == 5
    states = {name: node.status.state if node.status else None for name, node in gang.nodes.items()}
    assert states == {ONE: NodeState.DISCARDED, TWO: None, THREE: NodeState.DISCARDED}
    assert f"2 of 3 hosts are ready; waiting for {TWO}" in gang.messages("progress")
    assert "has not answered yet; another host failed" not in gang.messages("node_state")
    assert processes_with(f"DTTUI_JOB_ID={gang.directory.job_id}") == []


async def test_a_node_that_fails_in_prepare_does_not_wait_for_one_that_hangs(
    tmp_path: Path, short_deadlines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told within 40 s, while `prepare` may take 120; nothing was started."""
    monkeypatch.setattr(node_start, "PREPARE_DEADLINE_S", 120.0)
    gang = TestGang(tmp_path, {ONE: 1, TWO: 1, THREE: 1}, run=COUNT)
    only = gang.nodes[ONE].planned.model_copy(update={"required_paths": ("/no/such/place",)})
    gang.nodes[ONE].planned = only
    await gang.connect()
    with Stopped(await daemon_of(gang, TWO)):
        began = time.monotonic()
        with pytest.raises(LaunchError, match=f"{ONE}: there is no /no/such/place here; what runs on {TWO} is unknown"):
            await gang.start()
        assert time.monotonic() - began < ROLLED_BACK_WITHIN_S
        await gang.close()
    assert "has not answered yet; another host failed" in gang.messages("node_state")


async def test_a_node_that_is_gone_between_prepare_and_start_takes_the_started_ones_back(
    tmp_path: Path, short_deadlines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that runs is clean within the deadlines; the other one as soon as it answers. Nothing is left."""
    call = AgentClient.call

    async def hold_up(client: AgentClient, method: str, *arguments: Any, **options: Any) -> Any:
        if client.name == TWO and method in STARTS:
            stopped.append(Stopped(await daemon_of(gang, TWO)))
            stopped[-1].__enter__()
            options["timeout_s"] = 1.0
        return await call(client, method, *arguments, **options)

    stopped: list[Stopped] = []
    monkeypatch.setattr(AgentClient, "call", hold_up)
    gang = TestGang(tmp_path, {ONE: 1, TWO: 1}, run=COUNT)
    try:
        with pytest.raises(LaunchError, match=f"what runs on {TWO} is unknown"):
            await gang.start()
        assert gang.nodes[ONE].is_clean
        assert "clean" in gang.messages("node_state")
    finally:
        for item in stopped:
            item.__exit__()
    # What was heard there all the same is ended when somebody comes back to it.
    monkeypatch.setattr(AgentClient, "call", call)
    await gang.end()
    assert gang.nodes[TWO].is_clean
    assert processes_with(f"DTTUI_JOB_ID={gang.directory.job_id}") == []


@pytest.mark.parametrize("is_heard", [True, False])
async def test_a_start_without_an_answer_is_asked_about_and_happens_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_heard: bool
) -> None:
    """Whether it was heard or not; no process of the job is left."""
    call = AgentClient.call
    asked: list[str] = []

    async def lossy(client: AgentClient, method: str, *arguments: Any, **options: Any) -> Any:
        if client.name == TWO:
            asked.append(method)
            if method in STARTS and sum(map(asked.count, STARTS)) == 1:
                if is_heard:
                    await call(client, method, *arguments, **options)
                raise HostUnreachableError(TWO, "the answer was lost")
        return await call(client, method, *arguments, **options)

    monkeypatch.setattr(AgentClient, "call", lossy)
    gang = TestGang(tmp_path, {ONE: 1, TWO: 1}, run=COUNT)
    await gang.start()
    said = ["start" if method in STARTS else method for method in asked if method in (*STARTS, "status")]
    assert said == (["start", "status"] if is_heard else ["start", "status", "start"])
    wait_until(lambda: starts(gang, ONE) and starts(gang, TWO), "both ranks to run")
    await gang.end()
    assert starts(gang, TWO) == ["1"]
    assert processes_with(f"DTTUI_JOB_ID={gang.directory.job_id}") == []


async def test_of_two_launches_at_once_onto_the_same_slots_one_wins_and_the_other_is_told_whose_they_are(
    tmp_path: Path,
) -> None:
    """They name the hosts in opposite order. The loser is told by name and since when, and clean on every host."""
    orders = {"a": {ONE: 2, TWO: 3, THREE: 5}, "b": {THREE: 5, TWO: 3, ONE: 2}}
    gangs = [TestGang(tmp_path / name, slots, name=name, run=COUNT) for name, slots in orders.items()]
    await asyncio.gather(*(gang.connect() for gang in gangs))
    results = await asyncio.gather(*(gang.start() for gang in gangs), return_exceptions=True)
    failed = [item for item in results if isinstance(item, BaseException)]
    assert len(failed) == 1, results
    winner = gangs[1 if results[0] is failed[0] else 0]
    assert isinstance(failed[0], LaunchError)
    assert re.search(rf"job {winner.directory.job_id} has \d since \d{{4}}-.* UTC", failed[0].message)
    assert "every host was rolled back" in failed[0].message
    for gang in gangs:
        await gang.end()
        assert processes_with(f"DTTUI_JOB_ID={gang.directory.job_id}") == []


def test_what_a_controller_that_was_killed_had_prepared_is_free_again_after_a_while(tmp_path: Path) -> None:
    """Its lease, of 8 s here, lapses within 60 s, and its late start is refused. The daemon ends."""
    root = tmp_path / "root"
    code = "import sys; from dtagent.attempts import leases; from dtagent.daemon import server\n"
    code += "from pathlib import Path; leases.LEASE_S = 8.0; server.serve(Path(sys.argv[1]))"
    daemon = subprocess.Popen([sys.executable, "-c", code, str(root)], stderr=subprocess.DEVNULL)
    wait_until((root / "agent.sock").exists, "the daemon to serve")
    slots: dict[str, Any] = {"simulated_slots": 2, "simulated_total": 2, "port_range": [free_port()] * 2}
    try:
        with Conversation(root, keep_daemon=True) as agent:
            with Conversation(root, keep_daemon=True) as killed:
                killed.prepare("first", **slots)
                killed.child.kill()
            request = {"key": {"job_id": "second", "attempt": 0}, "node_rank": 0, "python": sys.executable,
                       "master_address": "127.0.0.1", "reserve_port": True, "cuda_slots": 0, **slots}  # fmt: skip
            assert "job first has 2" in agent.ask("prepare", request)["error"]["message"]
            wait_until(lambda: "result" in agent.ask("prepare", request), "the lease to lapse", 60)
            late = {"key": {"job_id": "first", "attempt": 0}, "node_rank": 0, "processes": [], "ranks": []}
            assert "too late: job second" in agent.ask("start", late)["error"]["message"]
            agent.call("shutdown")
        assert daemon.wait(60) == 0
    finally:
        daemon.kill()
        daemon.wait()
