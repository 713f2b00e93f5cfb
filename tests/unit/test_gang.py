"""What a gang tells of its nodes, and what its preflight asks of them, without hosts."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind
from dtagent.protocol.jobs import FollowReply, LogChunk, NodeState, NodeStatus

from dttui.inventory.models import Environment, GpuResources, Inventory, Resources
from dttui.planning.planner import plan
from dttui.services import jobs
from dttui.services.event_log import EventLog
from dttui.services.gang.attempt import Gang
from dttui.services.gang.node_run import NodeRun
from dttui.services.jobs import JobDirectory
from dttui.spec.models import Run
from dttui.transport.fake import FakeTransport
from tests.unit.seed_cluster import make_job

INVENTORY = Inventory(
    environments=(Environment(name="sim", host="sim", resources=Resources(gpu=GpuResources(count=2, simulated=True))),)
)


class Nobody:
    async def ask(self, prompt: object) -> str | None:
        return None


@pytest.fixture
def directory() -> JobDirectory:
    return jobs.create("x")


@pytest.fixture
def gang(directory: JobDirectory) -> Gang:
    job = make_job("sim", framework="command", run=Run(command=("true",)))
    return Gang(
        directory,
        EventLog(directory.events),
        FakeTransport({}),
        Nobody(),
        inventory=INVENTORY,
        plan=plan(job, INVENTORY),
        replan=lambda known, facts: plan(job, known, facts),
        base=Path(),
        secrets={},
    )


def test_a_host_that_falls_silent_and_comes_back_is_told_once_each(gang: Gang, directory: JobDirectory) -> None:
    (node,) = gang._nodes
    node.status = NodeStatus(node.key, 0, NodeState.RUNNING)
    gang._watch.report()
    node.heard_at = time.time() - 9
    node.silent_since = time.time()
    gang._watch.report()
    gang._watch.report()
    node.silent_since = None
    gang._watch.report()
    gang._watch.report()
    events = [(event.kind, event.data.get("state"), event.message) for event in directory.read_events()]
    assert events == [
        (EventKind.NODE_STATE, "running", ""),
        (EventKind.NODE_STATE, "unknown", "no word from sim for 9 s"),
        (EventKind.PROGRESS, None, "sim is back"),
        (EventKind.NODE_STATE, "running", ""),
    ]


def test_what_an_agent_says_of_its_own_records_is_told_once_each(gang: Gang, directory: JobDirectory) -> None:
    (node,) = gang._nodes
    node.status = NodeStatus(
        node.key, 0, NodeState.RUNNING, warnings=["the disk was full", "a record\x1b[2J is damaged"]
    )
    for _twice in range(2):
        gang._watch.report()
    told = [event for event in directory.read_events() if event.kind is EventKind.FINDING]
    assert [(event.message, event.data["severity"]) for event in told] == [
        ("sim: the disk was full", "warning"),
        ("sim: a record is damaged", "warning"),
    ]


def follow(node: NodeRun, stream: str, *lines: str) -> None:
    """Let the agent's answer to `follow` bring these lines."""
    data = "".join(f"{line}\n" for line in lines).encode()
    chunk = LogChunk(stream, node.logs.offsets.get(stream, 0), base64.b64encode(data).decode())
    node._store(FollowReply(NodeStatus(node.key, 0, NodeState.RUNNING), "", [chunk]))


def alerts(directory: JobDirectory) -> list[tuple[str, str, int | None]]:
    events = [event for event in directory.read_events() if event.kind is EventKind.METRIC_ALERT]
    return [(event.data["code"], event.message, event.rank) for event in events]


@pytest.mark.parametrize("stream", ["metrics", "trainer"])
def test_an_alarming_report_is_told_once_wherever_it_came_from(
    gang: Gang, directory: JobDirectory, stream: str
) -> None:
    (node,) = gang._nodes
    follow(node, stream, *(f'{{"step": {step}, "loss": {2 + step % 3 / 100}}}' for step in range(30)))
    follow(node, stream, '{"step": 30, "loss": 9.5}', '{"step": 31, "loss": NaN}', '{"at": {"0.out": 10}}')
    follow(node, stream, '{"step": 32, "loss": NaN}')
    for _twice in range(2):
        gang._watch.report()
    assert alerts(directory) == [
        ("loss-spike", "the loss jumped to 9.5 from about 2.01: rank 0 on sim, step 30", 0),
        ("loss-not-finite", "the loss is not a number any more: rank 0 on sim, step 31", 0),
    ]
    assert len(directory.metrics.read_text().splitlines()) == 33


def test_output_in_which_metrics_were_not_looked_for_is_told(gang: Gang, directory: JobDirectory) -> None:
    (node,) = gang._nodes
    follow(node, "trainer", '{"at": {"0.out": 10}, "skipped_bytes": 4096}')
    for _twice in range(2):
        gang._watch.report()
    findings = [event for event in directory.read_events() if event.kind is EventKind.FINDING]
    assert [event.data["code"] for event in findings] == ["metrics-skipped"]


def test_a_speed_for_each_gpu_becomes_that_of_the_job(gang: Gang, directory: JobDirectory) -> None:
    (node,) = gang._nodes
    follow(node, "trainer", '{"step": 1, "loss": 2.0, "tokens_per_s_per_gpu": 100}')
    assert json.loads(directory.metrics.read_text())["tokens_per_s"] == 200.0
