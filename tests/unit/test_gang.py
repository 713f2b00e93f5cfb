"""What a gang tells of its nodes, and what its preflight asks of them, without hosts."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind
from dtagent.protocol.jobs import NodeState, NodeStatus
from dtagent.protocol.telemetry import HostSample, RankSample

from dttui.inventory.models import Environment, GpuResources, Inventory, Resources
from dttui.planning.planner import plan
from dttui.services import gang as gang_module
from dttui.services import jobs
from dttui.services.gang import Gang
from dttui.services.jobs import EventLog
from dttui.services.node_run import NodeRun
from dttui.services.occupation import HostReading
from dttui.spec.models import Run
from dttui.transport.fake import FakeTransport
from tests.unit.seed_cluster import host_facts, make_job

INVENTORY = Inventory(
    environments=(Environment(name="sim", host="sim", resources=Resources(gpu=GpuResources(count=2, simulated=True))),)
)


class Nobody:
    async def ask(self, prompt: object) -> str | None:
        return None


@pytest.fixture
def gang() -> Gang:
    directory = jobs.create("x")
    job = make_job("sim", framework="command", run=Run(command=("true",)))
    return Gang(
        directory,
        EventLog(directory),
        FakeTransport({}),
        Nobody(),
        inventory=INVENTORY,
        plan=plan(job, INVENTORY),
        replan=lambda known, facts: plan(job, known, facts),
        base=Path(),
        secrets={},
    )


def test_a_host_that_falls_silent_and_comes_back_is_told_once_each(gang: Gang) -> None:
    (node,) = gang._nodes
    node.status = NodeStatus(node.key, 0, NodeState.RUNNING)
    gang._report()
    node.heard_at = time.time() - 9
    node.silent_since = time.time()
    gang._report()
    gang._report()
    node.silent_since = None
    gang._report()
    gang._report()
    events = [(event.kind, event.data.get("state"), event.message) for event in gang._directory.read_events()]
    assert events == [
        (EventKind.NODE_STATE, "running", ""),
        (EventKind.NODE_STATE, "unknown", "no word from sim for 9 s"),
        (EventKind.PROGRESS, None, "sim is back"),
        (EventKind.NODE_STATE, "running", ""),
    ]


def reading(rank_count: int) -> HostReading:
    ranks = {"other": [RankSample(rank, rank + 100) for rank in range(rank_count)]} if rank_count else {}
    return HostReading(host_facts(), HostSample(1, 0.0, ranks=ranks))


def then(*readings: HostReading) -> Callable[[NodeRun, HostReading], Awaitable[HostReading]]:
    """Stand for a host that is asked again and again."""
    left = list(readings)

    async def read_host(_node: NodeRun, _before: HostReading) -> HostReading:
        return left.pop(0) if len(left) > 1 else left[0]

    return read_host


async def test_slots_of_a_job_that_has_just_ended_are_waited_for(gang: Gang, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeRun, "read_host", then(reading(2), reading(0)))
    assert await gang._room({"sim": reading(2)}) == []


async def test_slots_that_stay_taken_are_an_error(gang: Gang, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_module, "ROOM_WAIT_S", 0.01)
    monkeypatch.setattr(NodeRun, "read_host", then(reading(2)))
    assert [finding.code for finding in await gang._room({"sim": reading(2)})] == ["gpus-taken"]
