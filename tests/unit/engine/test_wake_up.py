"""What a host has said is acted upon at once, whichever answer brought it, and in whatever order answers arrive."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import JobState
from dtagent.protocol.jobs import NodeState, NodeStatus, ProcessExit
from dtagent.protocol.logs import FollowReply, FollowRequest

from dttui import jobs
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.nodes.node_start import NodeStart
from dttui.engine.nodes.start_requests import StartRequests
from dttui.engine.rendezvous import arrivals
from dttui.engine.watch import GangWatch
from dttui.inventory.models import Environment
from dttui.jobs.event_log import EventLog
from dttui.jobs.outcome import AttemptOutcome
from dttui.planning.models import Bindings, BoundPlan
from dttui.rpc.flow_control import FlowControl
from dttui.transport.base import Nobody
from tests.fake_transport import FakeTransport
from tests.unit.jobs.test_follow import plan_for
from tests.waiting import until

LIMIT_S = 10.0
NEVER_S = 1000.0


class Host:
    """An agent whose status a test sets; `follow` is answered when that has changed, as a real one does."""

    clock_offset_s = 0.0
    hello = None

    def __init__(self, key: AttemptKey, node_rank: int) -> None:
        self.flow_control = FlowControl()
        self.status = NodeStatus(key, node_rank, NodeState.PREPARED)
        self.answers: dict[str, NodeStatus] = {}
        """What a call is answered with, where that is older than the status."""
        self._changed = asyncio.Condition()
        self._turns = 0

    async def say(self, **more: Any) -> None:
        async with self._changed:
            self.status, self._turns = replace(self.status, **more), self._turns + 1
            self._changed.notify_all()

    async def call(
        self, method: str, request: Any, _reply: object, _deadline_s: float = 0.0, brings: bytes = b"", **_more: object
    ) -> Any:
        if method == "follow":
            return await self._follow(request)
        return self.answers.get(method, self.status)

    async def telemetry(self, *_: object) -> list[Any]:
        await asyncio.sleep(NEVER_S)
        return []

    async def close(self) -> None:
        pass

    async def _follow(self, request: FollowRequest) -> FollowReply:
        async with self._changed:
            if request.wait_s > 0:
                await self._changed.wait_for(lambda: request.stamp != str(self._turns))
            return FollowReply(self.status, str(self._turns))


class Attempt:
    """Nodes with such hosts, and the watch over them."""

    def __init__(self, *names: str) -> None:
        self.plan = plan_for(*names)
        self.directory = jobs.create("x")
        self.changed = asyncio.Event()
        key = AttemptKey(self.directory.job_id, 0)
        self.nodes: list[NodeRun] = []
        self.hosts: list[Host] = []
        for planned in self.plan.nodes:
            environment = Environment(name=planned.name, host=planned.name)
            node = NodeRun(environment, planned, key, self.directory, FakeTransport({}), Nobody(), self.changed.set)
            self.hosts.append(Host(key, planned.node_rank))
            node.client = self.hosts[-1]  # type: ignore[assignment]  # all that is asked of it
            self.nodes.append(node)
        log = AttemptLog(EventLog(self.directory.events), 0)
        self.watch = GangWatch(self.directory, log, self.nodes, self.changed, ())

    async def start(self) -> None:
        requests = StartRequests(self.nodes[0].key, self.plan.nodes, 1.0, {}, 1)
        await asyncio.gather(*(NodeStart(node).start(requests) for node in self.nodes))

    def begin(self) -> asyncio.Task[AttemptOutcome]:
        bindings = Bindings(job_id=self.directory.job_id, attempt=0, master_port=1, nodes={})
        return asyncio.create_task(self.watch.run(BoundPlan(plan=self.plan, bindings=bindings)))

    def states(self) -> list[str]:
        return [state for event in self.directory.read_events() if (state := event.data.get("state")) is not None]


@pytest.fixture(autouse=True)
def nothing_but_news_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the board that looks by the clock come too late for any test."""
    monkeypatch.setattr(arrivals, "FIRST_LOOK_S", NEVER_S)


@pytest.mark.parametrize("names", ["a", "ab", "abcd"], ids=["one node", "two", "four"])
async def test_a_start_that_is_answered_when_all_ranks_run_already_is_told_as_running_at_once(names: str) -> None:
    attempt = Attempt(*names)
    for host in attempt.hosts:
        await host.say(state=NodeState.RUNNING, ranks_started=[host.status.node_rank])
    await attempt.start()
    watching = attempt.begin()
    try:
        await until(lambda: JobState.RUNNING.value in attempt.states(), "the job to be told as running", LIMIT_S)
    finally:
        for host in attempt.hosts:
            await host.say(state=NodeState.ENDED, exits=[ProcessExit("launcher", 1.0, 0)])
        await asyncio.wait_for(watching, LIMIT_S)


async def test_whatever_answer_brings_a_new_status_wakes_whoever_waits_for_one() -> None:
    attempt = Attempt("a")
    (node,), (host,) = attempt.nodes, attempt.hosts
    ways: tuple[Callable[[], Awaitable[object]], ...] = (
        attempt.start,
        node.await_status,
        functools.partial(node.stop, force=True),
        node.end_services,
    )
    for number, way in enumerate(ways):
        attempt.changed.clear()
        await host.say(state=NodeState.RUNNING, ranks_started=list(range(number)))
        await way()
        assert attempt.changed.is_set(), way
        assert node.status == host.status


async def test_an_answer_that_was_overtaken_takes_back_no_end() -> None:
    attempt = Attempt("a")
    (node,), (host,) = attempt.nodes, attempt.hosts
    await host.say(state=NodeState.RUNNING, ranks_started=[0])
    host.answers["stop"] = host.status
    await host.say(state=NodeState.ENDED, exits=[ProcessExit("0", 1.0, 0)])
    await node.follow()
    await node.stop(force=False)
    assert node.has_succeeded
