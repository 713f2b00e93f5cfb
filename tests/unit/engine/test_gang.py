"""What a gang tells of its nodes, and what its preflight asks of them, without hosts."""

from __future__ import annotations

import base64
import gc
import json
import time
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind, JobState
from dtagent.protocol.jobs import NodeState, NodeStatus
from dtagent.protocol.logs import FollowReply, LogChunk

from dttui import jobs
from dttui.engine.attempt import Attempt
from dttui.engine.context import JobContext
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.recovered import RecoveredState
from dttui.errors import AgentError, AgentGoneError
from dttui.inventory.models import Environment, GpuResources, Inventory, Resources
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.view import JobView
from dttui.planning.planner import plan
from dttui.spec.models import Run
from dttui.transport.base import Nobody
from tests.fake_transport import FakeTransport
from tests.unit.seed_cluster import make_job

INVENTORY = Inventory(
    environments=(Environment(name="sim", host="sim", resources=Resources(gpu=GpuResources(count=2, simulated=True))),)
)


@pytest.fixture
def directory() -> JobDirectory:
    return jobs.create("x")


@pytest.fixture
def gang(directory: JobDirectory) -> Attempt:
    job = make_job("sim", framework="command", run=Run(command=("true",)))
    return Attempt(
        JobContext(
            directory,
            EventLog(directory.events),
            FakeTransport({}),
            Nobody(),
            inventory=INVENTORY,
            replan=lambda known, facts, _links: plan(job, known, facts),
            base=Path(),
            secrets={},
        ),
        RecoveredState.new(plan(job, INVENTORY)),
    )


def test_the_hours_that_hosts_are_needed_for_count_from_the_first_attempt_on(directory: JobDirectory) -> None:
    log = EventLog(directory.events)
    job = JobContext(
        directory, log, FakeTransport({}), Nobody(), INVENTORY, lambda *_: plan(make_job("sim"), INVENTORY), Path(), {}
    )
    assert job.rest_s is None
    job = replace(job, for_s=3600.0)
    assert job.rest_s == 3600.0
    began = time.time() - 5400.0
    for attempt, state in enumerate((JobState.PREFLIGHT, JobState.LAUNCHING, JobState.RUNNING, JobState.LAUNCHING)):
        log.add(EventKind.JOB_STATE, "", time=began + attempt, data={"state": state.value})
    assert job.rest_s == pytest.approx(-1799.0, abs=10.0)


async def test_an_error_that_is_kept_of_a_node_keeps_nothing_alive_that_was_there_when_it_was_raised(
    gang: Attempt,
) -> None:
    class Held:
        pass

    there: list[weakref.ref[Held]] = []

    def fail() -> None:
        held = Held()
        there.append(weakref.ref(held))
        try:
            raise ConnectionError
        except ConnectionError as error:
            raise AgentGoneError("sim", "it is gone") from error

    (node,) = gang.nodes
    node.retry_now()
    try:
        fail()
    except AgentGoneError as error:
        await node.lose_link(error)
    gc.collect()
    assert node.agent_gone is not None
    assert node.agent_gone.message == "it is gone"
    assert there[0]() is None


def test_a_host_that_falls_silent_and_comes_back_is_told_once_each(
    gang: Attempt, directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    (node,) = gang.nodes
    node.status = NodeStatus(node.key, 0, NodeState.RUNNING)
    gang.watch.report()
    node.heard_at = time.time() - 9
    node.silent_since = time.time()
    gang.watch.report()
    gang.watch.report()
    node.silent_since = None
    gang.watch.report()
    gang.watch.report()
    events = [(event.kind, event.data.get("state"), event.message) for event in directory.read_events()]
    assert events == [
        (EventKind.NODE_STATE, "running", ""),
        (EventKind.NODE_STATE, "unknown", "no word from sim for 9 s"),
        (EventKind.PROGRESS, None, "sim is back"),
        (EventKind.NODE_STATE, "running", ""),
    ]


def test_what_an_agent_says_of_its_own_records_is_told_once_each(gang: Attempt, directory: JobDirectory) -> None:
    (node,) = gang.nodes
    node.status = NodeStatus(
        node.key, 0, NodeState.RUNNING, warnings=["the disk was full", "a record\x1b[2J is damaged"]
    )
    for _twice in range(2):
        gang.watch.report()
    told = [event for event in directory.read_events() if event.kind is EventKind.FINDING]
    assert [(event.message, event.data["severity"]) for event in told] == [
        ("sim: the disk was full", "warning"),
        ("sim: a record is damaged", "warning"),
    ]


def test_only_logs_of_processes_that_are_planned_by_now_are_taken(gang: Attempt, directory: JobDirectory) -> None:
    (node,) = gang.nodes
    for stream in ("2.out", "service-store.out", "service.err"):
        with pytest.raises(AgentError, match="not asked for"):
            follow(node, stream, "early")
    store = node.planned.processes[0].model_copy(update={"name": "service-store", "rank": None, "is_service": True})
    more = {"ranks": (0, 1, 2), "processes": (*node.planned.processes, store)}
    node.planned = node.planned.model_copy(update=more)  # As once the preflight has learnt of another GPU.
    for stream in ("2.out", "service-store.out"):
        follow(node, stream, "well")
        assert (directory.logs(0, "sim") / stream).read_text() == "well\n"
    with pytest.raises(AgentError, match="not asked for"):
        follow(node, "service.err", "still not")


def test_a_rank_whose_output_was_cut_is_told_once_and_again_at_the_end(gang: Attempt, directory: JobDirectory) -> None:
    (node,) = gang.nodes
    streams = ["0.out", "0.err", "launcher.out", "77.out"]
    node.status = NodeStatus(node.key, 0, NodeState.RUNNING, cut_logs=streams)
    for _twice in range(2):
        gang.watch.report()
    (told,) = [event for event in directory.read_events() if event.kind is EventKind.FINDING]
    assert (told.data["code"], told.message) == ("log-cut", "the output of rank 0 on sim passed its cap")
    view = JobView("x")
    view.apply(told)
    assert view.places("/jobs/x") == ("logs: /jobs/x", f"⚠ {told.message}")


def follow(node: NodeRun, stream: str, *lines: str) -> None:
    """Let the agent's answer to `follow` bring these lines."""
    data = "".join(f"{line}\n" for line in lines).encode()
    chunk = LogChunk(stream, node.record.logs.offsets.get(stream, 0), base64.b64encode(data).decode())
    node.record.store(FollowReply(NodeStatus(node.key, 0, NodeState.RUNNING), "", [chunk]))


def alerts(directory: JobDirectory) -> list[tuple[str, str, int | None]]:
    events = [event for event in directory.read_events() if event.kind is EventKind.METRIC_ALERT]
    return [(event.data["code"], event.message, event.rank) for event in events]


@pytest.mark.parametrize("stream", ["metrics", "trainer"])
def test_an_alarming_report_is_told_once_wherever_it_came_from(
    gang: Attempt, directory: JobDirectory, stream: str
) -> None:
    (node,) = gang.nodes
    follow(node, stream, *(f'{{"step": {step}, "loss": {2 + step % 3 / 100}}}' for step in range(30)))
    follow(node, stream, '{"step": 30, "loss": 9.5}', '{"step": 31, "loss": NaN}', '{"at": {"0.out": 10}}')
    follow(node, stream, '{"step": 32, "loss": NaN}')
    for _twice in range(2):
        gang.watch.report()
    assert alerts(directory) == [
        ("loss-spike", "the loss jumped to 9.5 from about 2.01: rank 0 on sim, step 30", 0),
        ("loss-not-finite", "the loss is not a number any more: rank 0 on sim, step 31", 0),
    ]
    assert len(directory.metrics.read_text().splitlines()) == 33


@pytest.mark.parametrize("rank", [-1, 2, 1 << 40])
def test_a_report_of_a_rank_that_the_job_does_not_have_is_kept_and_not_watched(
    gang: Attempt, directory: JobDirectory, rank: int
) -> None:
    (node,) = gang.nodes
    follow(node, "metrics", f'{{"step": 1, "loss": NaN, "rank": {rank}}}')
    gang.watch.report()
    assert alerts(directory) == []
    assert json.loads(directory.metrics.read_text())["rank"] == rank
    follow(node, "metrics", '{"step": 1, "loss": NaN, "rank": 1}')
    gang.watch.report()
    assert [who for _code, _message, who in alerts(directory)] == [1]


def test_output_in_which_metrics_were_not_looked_for_is_told(gang: Attempt, directory: JobDirectory) -> None:
    (node,) = gang.nodes
    follow(node, "trainer", '{"at": {"0.out": 10}, "skipped_bytes": 4096}')
    for _twice in range(2):
        gang.watch.report()
    findings = [event for event in directory.read_events() if event.kind is EventKind.FINDING]
    assert [event.data["code"] for event in findings] == ["metrics-skipped"]


def test_lines_that_were_not_read_for_metrics_are_counted_once_at_the_end(
    gang: Attempt, directory: JobDirectory
) -> None:
    (node,) = gang.nodes
    follow(node, "trainer", '{"at": {"0.out": 10}, "unread_lines": 4096}')
    follow(node, "trainer", '{"at": {"0.out": 20}, "unread_lines": 4}')
    gang.watch.report()
    assert not [event for event in directory.read_events() if event.kind is EventKind.FINDING]
    node.status = NodeStatus(node.key, 0, NodeState.ENDED)
    gang.watch.report()
    follow(node, "trainer", '{"at": {"0.out": 30}, "unread_lines": "many"}')
    gang.watch.report()
    (said,) = [event for event in directory.read_events() if event.kind is EventKind.FINDING]
    assert said.data["code"] == "metrics-sampled"
    assert said.message.startswith("of what sim printed, 4100 lines were not read for metrics")


def test_a_speed_for_each_gpu_becomes_that_of_the_job(gang: Attempt, directory: JobDirectory) -> None:
    (node,) = gang.nodes
    follow(node, "trainer", '{"step": 1, "loss": 2.0, "tokens_per_s_per_gpu": 100}')
    assert json.loads(directory.metrics.read_text())["tokens_per_s"] == 200.0
