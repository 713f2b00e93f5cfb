"""The start of a gang in two phases, with real agents: all nodes run, or all that can be reached are proven clean."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.events import EventKind

from dttui.engine import attempt, watch
from dttui.engine.rendezvous import arrivals, process_group
from dttui.errors import ExitCode
from dttui.inventory.models import Environment, GpuResources, Inventory, Resources
from dttui.planning.models import BoundPlan
from dttui.preflight import node_reachability
from dttui.preflight.preflight import Preflight
from tests.agent.conversation import processes_with
from tests.integration.gangs import ONE, TWO, TestGang
from tests.outcomes import ended_with
from tests.processes import ended_agents as ended_agents
from tests.waiting import wait_until

COUNT = {"command": ["sh", "-c", 'echo "$RANK" >> "$DTTUI_CHECKPOINT_DIR/starts"; exec sleep 60']}


@pytest.mark.torch
async def test_who_does_not_come_to_the_rendezvous_is_named_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "FIRST_LOOK_S", 2.0)
    monkeypatch.setattr(arrivals, "MOST_LOOK_S", 1.0)
    prefix = 'if [ "$DTTUI_NODE_RANK" = 1 ]; then echo "waiting for the \033[31mlicence" >&2; sleep 600; fi; exec "$@"'
    (tmp_path / "train.py").write_text("")
    run = {"script": "train.py", "prefix": ["sh", "-c", prefix, "sh"]}
    boards: list[arrivals.RendezvousBoard] = []

    class Board(arrivals.RendezvousBoard):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            boards.append(self)

    monkeypatch.setattr(watch, "RendezvousBoard", Board)
    asked = {"rendezvous_timeout": "20m"}
    gang = TestGang(tmp_path, {ONE: 1, TWO: 1}, framework="pytorch-ddp", run=run, communication=asked)
    running = asyncio.ensure_future(gang.gang.run())

    async def master_has_come() -> dict[str, Any]:
        while True:
            for event in gang.directory.read_events():
                missing = event.data.get("missing", {})
                # Whichever of the two is known first; it is looked at again.
                if missing.get(ONE, {}).get("has_come") and missing[TWO]["said"]:
                    assert event.message.startswith("1 of 2 nodes have joined after ")
                    assert event.message.endswith(f" s; waiting for {TWO} (waiting for the licence)")
                    return dict(missing[TWO])
            assert not running.done()
            await asyncio.sleep(0.1)

    assert await asyncio.wait_for(master_has_come(), 90) == {"has_come": False, "said": "waiting for the licence"}
    assert [board.limit_s for board in boards] == [1200.0]
    boards[0].limit_s = 1.0
    ended_with(
        await asyncio.wait_for(running, 60),
        ExitCode.JOB_FAILED,
        rf"^{TWO} \(waiting for the licence\) did not join within \d+ s$",
    )
    assert processes_with(f"DTTUI_JOB_ID={gang.directory.job_id}") == []
    last = [event.data for event in gang.directory.read_events() if "missing" in event.data][-1]
    assert last["port"] > 0
    assert last["missing"][TWO]["has_come"] is False


@pytest.mark.torch
async def test_a_rank_that_does_not_come_to_init_process_group_is_named_while_another_waits_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_group, "FIRST_LOOK_S", 0.5)
    monkeypatch.setattr(process_group, "MOST_LOOK_S", 0.5)
    script = """
import os, time
if os.environ["RANK"] == "1":
    time.sleep(600)
import torch.distributed
torch.distributed.init_process_group("gloo")
"""
    (tmp_path / "train.py").write_text(script)
    gang = TestGang(tmp_path, {ONE: 1, TWO: 1}, framework="pytorch-ddp", run={"script": "train.py"})
    running = asyncio.ensure_future(gang.gang.run())

    async def is_named() -> str:
        while True:
            for event in gang.directory.read_events():
                if event.data.get("absent_ranks") == {"1": TWO}:
                    return event.message
            assert not running.done()
            await asyncio.sleep(0.1)

    message = await asyncio.wait_for(is_named(), 90)
    assert message.startswith("1 rank waits in init_process_group; not there ")
    assert message.endswith(f" s after all ran: rank 1 on {TWO}")
    gang.gang.request_stop(force=True)
    ended_with(await asyncio.wait_for(running, 60), ExitCode.CANCELLED)


async def test_the_rendezvous_is_where_the_preflight_saw_the_nodes_reach_the_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Preflight] = []

    class Seen(Preflight):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr(attempt, "Preflight", Seen)
    monkeypatch.setattr(node_reachability, "CALL_MARGIN_S", 60.0)  # A host that is busy for 5 s is not listened at.
    gang = TestGang(tmp_path, {ONE: 1, TWO: 1}, run={"command": ["sh", "-c", 'test "$MASTER_PORT" -gt 0']})
    await asyncio.wait_for(gang.gang.run(), 150)
    bound = BoundPlan.model_validate_json(gang.directory.bound_plan(0).read_bytes())
    assert made[0].master_port == bound.bindings.master_port
    assert "port-not-tried" not in [event.data.get("code") for event in gang.directory.read_events()]


async def test_a_port_that_was_taken_since_the_preflight_is_told(tmp_path: Path) -> None:
    gang = TestGang(tmp_path, {ONE: 1}, run=COUNT)
    with socket.socket() as taken:
        first, last = gang.gang.plan.port_range
        tried = next(port for port in range(first, last) if _is_bound(taken, port))
        gang.gang_start.tried_port = tried
        bound = await gang.start()
    port = bound.bindings.master_port
    said = f"{ONE}: port {tried} was taken since the preflight; {port} is used, and was not tried"
    assert said in gang.messages("finding")
    await gang.end()


def _is_bound(listener: socket.socket, port: int) -> bool:
    try:
        listener.bind(("", port))
    except OSError:
        return False
    listener.listen()
    return True


async def test_a_host_keeps_no_more_of_a_log_than_the_job_says(tmp_path: Path) -> None:
    whole = 8 << 20
    run = {"command": ["sh", "-c", f"head -c {whole} /dev/zero | tr '\\0' '\\n'; sleep 60"]}
    gang = TestGang(tmp_path, {ONE: 1}, run=run, monitoring={"log_cap": "1MiB"})
    await gang.start()
    root = Path(gang.nodes[ONE].environment.agent_root or "")
    log = root / "jobs" / gang.directory.job_id / "0/logs/0.out"
    await asyncio.to_thread(wait_until, lambda: log.exists() and log.stat().st_size == whole, "the rank to print", 60)
    await asyncio.to_thread(wait_until, lambda: log.stat().st_blocks * 512 <= 1 << 20, "the log to be cut", 60)
    await gang.end()


async def test_a_host_that_refuses_is_never_said_to_be_connected(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # Not listening, so that who connects is refused.
        slots = Resources(gpu=GpuResources(count=1, type="A100", simulated=True))
        down = Environment(name="down", host="127.0.0.1", port=held.getsockname()[1], resources=slots)
        gang = TestGang(tmp_path, {"down": 1}, Inventory(environments=(down,)))
        ended_with(await gang.gang.run(), ExitCode.UNREACHABLE)
    told = [event.data["state"] for event in gang.directory.read_events() if event.kind is EventKind.NODE_STATE]
    assert told == ["failed"]
