"""Watching an elastic attempt of nodes that are not there: what ends it, what does not, and what is said of that."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import EventKind, JobState, NodeStanding
from dtagent.protocol.jobs import EndReason, Leftover, NodeState, NodeStatus, ProcessExit, RankFailure
from dtagent.protocol.meeting import Numbering

from dttui import jobs
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.nodes.node_record import Shared
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.rendezvous import membership
from dttui.engine.watch import GangWatch
from dttui.inventory.models import Environment
from dttui.jobs.event_log import EventLog
from dttui.jobs.outcome import AttemptOutcome
from dttui.jobs.view import NODE_OUT, JobView
from dttui.planning.models import Bindings, BoundPlan
from dttui.transport.base import Nobody
from tests.fake_transport import FakeTransport
from tests.unit.jobs.test_follow import plan_for
from tests.waiting import until

LIMIT_S = 10.0
STOPPED: dict[str, Any] = {
    "state": NodeState.ENDED,
    "reason": EndReason.STOPPED.value,
    "exits": [ProcessExit("launcher", 5.0, 143)],
}
WELL: dict[str, Any] = {"state": NodeState.ENDED, "exits": [ProcessExit("launcher", 5.0, 0)]}
FAILED: dict[str, Any] = {
    "state": NodeState.ENDED,
    "reason": EndReason.PROCESS_FAILED.value,
    "exits": [ProcessExit("launcher", 5.0, 1)],
}
UNKILLABLE: dict[str, Any] = {
    "state": NodeState.UNKILLABLE,
    "reason": "stopped",
    "leftovers": [Leftover(7, "python", "D")],
}
GIVEN_UP = "the launcher on c exited with code 1; torchrun has given up on c, which closes the rendezvous for all"


class Watched:
    """Three nodes with a rank each, of which two are needed; each says what a test lets it say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *earlier: tuple[EventKind, str, dict[str, Any]]) -> None:
        self.directory = jobs.create("x")
        self.key = AttemptKey(self.directory.job_id, 0)
        self.plan = plan_for("a", "b", "c").model_copy(update={"min_nodes": 2})
        self.changed = asyncio.Event()
        self.log = AttemptLog(EventLog(self.directory.events), 0)
        for kind, message, data in earlier:
            self.log.add(kind, message, data=data)
        told = self.directory.read_events()
        self.log.resume(told)
        self.told: list[str] = []
        """Nodes that were told to end."""
        self.broken: set[str] = set()
        """Nodes of which what follows them breaks."""
        self.nodes = []
        shared = Shared(world_size=3, is_elastic=True)
        for planned in self.plan.nodes:
            node = NodeRun(
                Environment(name=planned.name, host=planned.name),
                planned,
                self.key,
                self.directory,
                FakeTransport({}),
                Nobody(),
                self.changed.set,
                shared,
            )
            monkeypatch.setattr(node, "follow", functools.partial(self._follow, node))
            monkeypatch.setattr(node, "stop", functools.partial(self._stop, node))
            self.nodes.append(node)
        self.watch = GangWatch(self.directory, self.log, self.nodes, self.changed, (), told)
        self.task: asyncio.Task[AttemptOutcome] | None = None

    def begin(self) -> asyncio.Task[AttemptOutcome]:
        bindings = Bindings(job_id=self.directory.job_id, attempt=0, master_port=1, nodes={})
        self.task = asyncio.create_task(self.watch.run(BoundPlan(plan=self.plan, bindings=bindings)))
        return self.task

    def say(self, name: str, rank: int, size: int = 3, port: int = 4000, **more: Any) -> None:
        node = next(node for node in self.nodes if node.name == name)
        more = {"state": NodeState.RUNNING, **more}
        numbering = Numbering([rank], size, int(size < 3), port)
        node.status = NodeStatus(self.key, node.planned.node_rank, ranks_started=[rank], numbering=numbering, **more)
        self.changed.set()

    async def all_run(self) -> None:
        self.begin()
        for rank, name in enumerate("abc"):
            self.say(name, rank)
        await self.until_told(EventKind.JOB_STATE, "3 ranks run, on 3 of 3 nodes")

    async def until_told(self, kind: EventKind, message: str) -> None:
        await until(lambda: message in self.messages(kind), f"{message}: {self.directory.read_events()}", LIMIT_S)

    def messages(self, kind: EventKind) -> list[str]:
        return [event.message for event in self.directory.read_events() if event.kind is kind]

    def outs(self) -> list[str]:
        events = [event for event in self.directory.read_events() if event.data.get("code") == NODE_OUT]
        return [event.data["subject"] for event in events]

    def view(self) -> JobView:
        view = JobView(self.directory.job_id)
        view.set_plan(self.plan)
        for event in self.directory.read_events():
            view.apply(event)
        return view

    async def end(self) -> str:
        """Return how it ended: the state and why."""
        assert self.task is not None
        outcome = await asyncio.wait_for(self.task, LIMIT_S)
        return f"{outcome.state.value}: {outcome.message}"

    async def _follow(self, node: NodeRun) -> None:
        while not node.is_over:
            if node.name in self.broken:
                raise ValueError("nonsense")
            await asyncio.sleep(0.01)

    async def _stop(self, node: NodeRun, *, force: bool) -> None:
        self.told.append(node.name)


@pytest.fixture
async def watched(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Watched]]:
    """A way to have such nodes watched."""
    made: list[Watched] = []

    def make(*earlier: tuple[EventKind, str, dict[str, Any]]) -> Watched:
        made.append(Watched(monkeypatch, *earlier))
        return made[-1]

    yield make
    for item in made:
        if item.task is not None:
            item.task.cancel()
            await asyncio.gather(item.task, return_exceptions=True)


Watch = Callable[..., Watched]


async def test_a_stop_is_no_loss_of_the_node_that_ends_first(watched: Watch) -> None:
    attempt = watched()
    await attempt.all_run()
    attempt.watch.request_stop(force=False)
    await until(lambda: sorted(attempt.told) == ["a", "b", "c"], "all to be told", LIMIT_S)
    for rank, name in ((1, "b"), (0, "a"), (2, "c")):
        attempt.say(name, rank, **STOPPED)
        await until(lambda name=name: attempt.view().nodes[name].is_over, f"the end of {name}", LIMIT_S)  # type: ignore[misc]
    assert await attempt.end() == "CANCELLED: stopped on request"
    assert attempt.outs() == []
    assert attempt.messages(EventKind.JOB_STATE)[-1] == "stopping on request"
    assert {name: node.ranks for name, node in attempt.view().nodes.items()} == {"a": (0,), "b": (1,), "c": (2,)}


async def test_a_stop_after_a_loss_is_a_stop(watched: Watch) -> None:
    attempt = watched()
    await attempt.all_run()
    attempt.say("b", 1, **FAILED | {"exits": [ProcessExit("launcher", 5.0, signal=9)]})
    await until(lambda: attempt.outs() == ["b"], "b to be out", LIMIT_S)
    attempt.watch.request_stop(force=False)
    await until(lambda: sorted(attempt.told) == ["a", "c"], "the others to be told", LIMIT_S)
    attempt.say("c", 2, **STOPPED)
    attempt.say("a", 0, **STOPPED)
    assert await attempt.end() == "CANCELLED: stopped on request"
    assert attempt.outs() == ["b"]


@pytest.mark.parametrize("end", [FAILED, UNKILLABLE], ids=["ended", "cannot be ended"])
async def test_a_node_that_could_not_be_followed_is_not_why_a_job_fails_that_had_gone_on_without_it(
    watched: Watch, end: dict[str, Any]
) -> None:
    attempt = watched()
    await attempt.all_run()
    attempt.broken.add("b")
    await until(lambda: attempt.told == ["b"], "b to be told to end", LIMIT_S)
    attempt.say("b", 1, **end)
    await until(lambda: attempt.outs() == ["b"], "b to be out", LIMIT_S)
    attempt.say("c", 2, **FAILED)
    await until(lambda: "a" in attempt.told, "the others to be told", LIMIT_S)
    attempt.say("a", 0, **STOPPED)
    assert await attempt.end() == f"FAILED: {GIVEN_UP}"
    assert attempt.messages(EventKind.RANK_FAILED)[0] == "the launcher on c exited with code 1"


async def test_the_next_controller_ends_well_with_a_node_that_is_out_and_silent(watched: Watch) -> None:
    out = "b is out: no word from b. The job goes on with 2 of 3 nodes"
    running = (EventKind.JOB_STATE, "3 ranks run, on 3 of 3 nodes", {"state": JobState.RUNNING.value})
    attempt = watched(running, (EventKind.FINDING, out, {"code": NODE_OUT, "severity": "warning", "subject": "b"}))
    attempt.nodes[1].silent_since = 7.0
    attempt.begin()
    for rank, name in enumerate("ac"):
        attempt.say(name, rank, size=2, port=4001)
    await attempt.until_told(EventKind.JOB_STATE, "2 ranks run, on 2 of 3 nodes")
    for rank, name in enumerate("ac"):
        attempt.say(name, rank, size=2, port=4001, **WELL)
    assert await attempt.end() == "SUCCEEDED: ended well, without b"
    assert attempt.outs() == ["b"]
    assert attempt.view().nodes["b"].state is NodeStanding.LOST


async def test_a_stop_that_the_earlier_controller_had_begun_is_no_loss_to_the_next(watched: Watch) -> None:
    attempt = watched((EventKind.JOB_STATE, "stopping on request", {"state": JobState.STOPPING.value}))
    attempt.watch.request_stop(force=False)
    attempt.say("b", 1, **STOPPED)
    attempt.begin()
    await until(lambda: sorted(attempt.told) == ["a", "c"], "the others to be told", LIMIT_S)
    attempt.say("c", 2, **STOPPED)
    attempt.say("a", 0, **STOPPED)
    assert await attempt.end() == "CANCELLED: stopped on request"
    assert attempt.outs() == []
    assert attempt.view().state is JobState.STOPPING


@pytest.mark.parametrize("ahead_s", [0, 3600, -3600], ids=["alike", "an-hour-ahead", "an-hour-behind"])
async def test_a_silent_host_of_the_rendezvous_ends_the_job_once_no_ranks_are_left_for_long(
    watched: Watch, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    monkeypatch.setattr(membership, "HOSTLESS_S", 0.3)
    attempt = watched()
    await attempt.all_run()
    attempt.nodes[0].silent_since = time.time()
    attempt.say("b", 1, failures=[RankFailure(1, time.time(), 1, None)])
    assert attempt.task is not None
    assert await asyncio.wait([attempt.task], timeout=0.6) == (set(), {attempt.task})
    assert attempt.told == [], "the ranks of c run: the host is only out of the login node's reach"
    attempt.say("c", 2, failures=[RankFailure(2, time.time() + ahead_s, 1, None)])
    await until(lambda: {"b", "c"} <= {*attempt.told}, "the others to be told", LIMIT_S)
    attempt.say("b", 1, **STOPPED)
    attempt.say("c", 2, **STOPPED)
    attempt.say("a", 0, state=NodeState.LOST, reason="gone")
    ended = await attempt.end()
    assert ended == "FAILED: a: gone; the rendezvous was on a, and the job ends with it"
