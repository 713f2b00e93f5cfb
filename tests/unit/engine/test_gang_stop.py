"""How a gang is told to stop: no host holds the word back from the others, and none is waited for without end."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind
from dtagent.protocol.jobs import NodeState, NodeStatus
from dtagent.protocol.rpc import ErrorCode

from dttui import jobs
from dttui.engine import watch as gang_watch
from dttui.engine.attempt import Attempt
from dttui.engine.context import JobContext
from dttui.engine.nodes import stop_order
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.recovered import RecoveredState
from dttui.engine.rendezvous.arrivals import RendezvousBoard
from dttui.errors import AgentError, AuthenticationError, ExitCode, HostError
from dttui.i18n import msg
from dttui.inventory.models import Environment, GpuResources, Inventory, Resources
from dttui.jobs.event_log import EventLog
from dttui.jobs.exit_codes import exit_code_of
from dttui.jobs.outcome import AttemptOutcome
from dttui.planning.models import Bindings, BoundPlan
from dttui.planning.planner import plan
from dttui.spec.models import Run
from dttui.transport.base import Nobody
from tests.fake_transport import FakeTransport
from tests.unit.seed_cluster import make_job
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("unhurried")

LIMIT_S = 10.0


async def hear(node: NodeRun, force: bool) -> None:
    """Be told, and end at once."""
    node.status = NodeStatus(node.key, 0, NodeState.ENDED, reason="stopped")
    node.on_change()


async def freeze(_node: NodeRun, _force: bool) -> None:
    await asyncio.Event().wait()


def refuse(times: int, error: HostError) -> Callable[[NodeRun, bool], Awaitable[None]]:
    """Return what refuses a stop so many times, and then hears it."""
    left = iter(range(times))

    async def answer(node: NodeRun, force: bool) -> None:
        if next(left, None) is not None:
            raise error
        await hear(node, force)

    return answer


class Watched:
    """A gang that runs, of nodes that answer to a stop as a test says; each is followed until it ended or broke."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Callable[[NodeRun, bool], Awaitable[None]]) -> None:
        self.directory = jobs.create("x")
        self.told: list[tuple[str, str]] = []
        """Nodes and the words that reached them."""
        self.frozen: set[str] = set()
        """Nodes whose link has frozen, so that only a cancellation ends what follows them."""
        self.fetched = asyncio.Event()
        """Set unless the logs of nodes that have ended are still to be fetched."""
        self.fetched.set()
        self._answers = answers
        self._broken: set[str] = set()
        inventory = Inventory(
            environments=tuple(
                Environment(name=name, host=name, resources=Resources(gpu=GpuResources(count=2, simulated=True)))
                for name in answers
            )
        )
        job = make_job(*answers, framework="command", run=Run(command=("true",)))
        self.gang = Attempt(
            JobContext(
                self.directory,
                EventLog(self.directory.events),
                FakeTransport({}),
                Nobody(),
                inventory=inventory,
                replan=lambda known, facts, _links: plan(job, known, facts),
                base=Path(),
                secrets={},
            ),
            RecoveredState.new(plan(job, inventory)),
        )
        for node in self.gang.nodes:
            node.status = NodeStatus(node.key, 0, NodeState.RUNNING, ranks_started=list(node.planned.ranks))
            monkeypatch.setattr(node, "follow", functools.partial(self._follow, node))
            monkeypatch.setattr(node, "stop", functools.partial(self._stop, node))
        monkeypatch.setattr(stop_order, "STOP_RETRY_S", 0.01)
        bindings = Bindings(job_id=self.directory.job_id, attempt=0, master_port=1, nodes={})
        self.task = asyncio.create_task(self.gang.watch.run(BoundPlan(plan=self.gang.plan, bindings=bindings)))

    def follow_breaks(self, *names: str) -> None:
        """Let what follows these nodes break."""
        self._broken = set(names)

    def words(self, name: str) -> list[str]:
        """What a node was told, in order."""
        return [word for node, word in self.told if node == name]

    async def wait_for(self, name: str, *words: str) -> None:
        """Wait until a node was told these words."""
        await until(lambda: self.words(name) == list(words), f"{name} to be told {words}: {self.told}", LIMIT_S)

    async def outcome(self) -> AttemptOutcome:
        """Return how the attempt ended."""
        return await asyncio.wait_for(self.task, LIMIT_S)

    def states(self, name: str) -> list[tuple[str, str]]:
        events = [event for event in self.directory.read_events() if event.kind is EventKind.NODE_STATE]
        return [(event.data["state"], event.message) for event in events if event.node == name]

    async def _follow(self, node: NodeRun) -> None:
        while not node.is_over:
            if node.name in self.frozen:
                await asyncio.Event().wait()
            if node.name in self._broken:
                raise ValueError("nonsense")
            await asyncio.sleep(0.01)
        await self.fetched.wait()

    async def _stop(self, node: NodeRun, *, force: bool) -> None:
        self.told.append((node.name, "kill" if force else "stop"))
        await self._answers[node.name](node, force)


Watch = Callable[..., Watched]


@pytest.fixture
async def watch(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watch]:
    """A way to watch nodes that answer to a stop as told."""
    made: list[Watched] = []

    def make(**answers: Callable[[NodeRun, bool], Awaitable[None]]) -> Watched:
        made.append(Watched(monkeypatch, **answers))
        return made[-1]

    yield make
    for item in made:
        item.task.cancel()
        await asyncio.gather(item.task, return_exceptions=True)


async def slowly(_node: NodeRun, _force: bool) -> None:
    """Hear, and take its time to end."""


async def test_a_frozen_host_holds_no_word_back_from_the_others(watch: Watch) -> None:
    watched = watch(bad=freeze, good=slowly, worse=freeze)
    watched.gang.request_stop(force=False)
    await watched.wait_for("good", "stop")
    watched.gang.request_stop(force=True)
    await watched.wait_for("good", "stop", "kill")
    await watched.wait_for("bad", "stop", "kill")


async def test_a_forced_stop_gives_up_a_frozen_host_at_its_deadline_and_not_later(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_watch, "FORCED_STOP_DEADLINE_S", 0.3)
    watched = watch(good=hear, bad=freeze)
    watched.frozen.add("bad")
    watched.gang.request_stop(force=True)
    outcome = await watched.outcome()
    assert (exit_code_of(outcome), outcome.message) == (
        ExitCode.JOB_FAILED,
        "stopped on request, but bad could not be reached",
    )
    assert watched.states("good")[-1][0] == "stopped"
    assert watched.states("bad")[-1] == ("lost", "could not be reached; what runs there is unknown")


async def test_logs_that_drain_past_the_deadline_of_a_stop_are_waited_for_and_not_polled(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_watch, "FORCED_STOP_DEADLINE_S", 0.2)
    watched = watch(good=hear, bad=freeze)
    wait, waits = asyncio.wait, []

    async def told_how_long(awaited: Iterable[asyncio.Task[object]], *, timeout: float | None = None) -> object:
        if asyncio.current_task() is watched.task:
            waits.append(math.inf if timeout is None else timeout)
        return await wait(awaited, timeout=timeout)

    monkeypatch.setattr(asyncio, "wait", told_how_long)
    watched.frozen.add("bad")
    watched.fetched.clear()
    watched.gang.request_stop(force=True)
    await until(lambda: watched.states("bad")[-1:] != [] and watched.states("bad")[-1][0] == "lost", "it", LIMIT_S)
    past = len(waits)
    for node in watched.gang.nodes:
        node.on_change()
        count = len(waits)
        await until(lambda count=count: len(waits) > count, "the watch to look again", LIMIT_S)  # type: ignore[misc]
    assert all(wait_s > 0.1 for wait_s in waits[past:])
    watched.fetched.set()
    assert exit_code_of(await watched.outcome()) == ExitCode.JOB_FAILED


async def test_hosts_that_broke_and_froze_delay_no_word_to_the_others(watch: Watch) -> None:
    watched = watch(bad=freeze, worse=freeze, good=slowly)
    watched.follow_breaks("bad", "worse")
    for name, word in {"bad": "kill", "worse": "kill", "good": "stop"}.items():
        await watched.wait_for(name, word)


async def test_a_host_that_broke_is_killed_before_the_attempt_is_over(watch: Watch) -> None:
    busy = AgentError("bad", "bad: no more threads", code=ErrorCode.BUSY)
    watched = watch(bad=refuse(2, busy))
    watched.follow_breaks("bad")
    outcome = await watched.outcome()
    assert (exit_code_of(outcome), outcome.message) == (
        ExitCode.JOB_FAILED,
        "bad could not be followed: ValueError: nonsense",
    )
    assert watched.words("bad") == ["kill"] * 3
    assert watched.gang.nodes[0].is_clean


@pytest.mark.parametrize("code", [ErrorCode.BUSY, ErrorCode.TIMED_OUT, ErrorCode.INTERNAL])
async def test_a_refused_stop_is_told_and_asked_again(watch: Watch, code: ErrorCode) -> None:
    watched = watch(good=hear, bad=refuse(3, AgentError("bad", "bad: no more threads", code=code)))
    watched.gang.request_stop(force=False)
    assert exit_code_of(await watched.outcome()) == ExitCode.CANCELLED
    assert watched.words("bad") == ["stop"] * 4
    assert watched.words("good") == ["stop"]
    findings = [event for event in watched.directory.read_events() if event.kind is EventKind.FINDING]
    assert [event.message for event in findings] == ["bad: no more threads; it is told to stop again"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (refuse(10**6, AgentError("bad", "bad: no more threads", code=ErrorCode.BUSY)), "bad: no more threads"),
        (slowly, "bad did not end in time"),
    ],
)
async def test_a_host_that_answers_and_does_not_end_is_not_called_out_of_reach(
    watch: Watch,
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[NodeRun, bool], Awaitable[None]],
    why: str,
) -> None:
    monkeypatch.setattr(gang_watch, "STOP_DEADLINE_S", 0.3)
    watched = watch(good=hear, bad=answer)
    watched.gang.request_stop(force=False)
    outcome = await watched.outcome()
    assert (exit_code_of(outcome), outcome.message) == (
        ExitCode.JOB_FAILED,
        f"stopped on request, but not ended: {why}",
    )
    assert watched.states("bad")[-1] == ("lost", f"{why}; what runs there is unknown")


async def test_a_stop_never_tries_to_log_in_again_and_again(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_watch, "STOP_DEADLINE_S", 0.3)
    watched = watch(bad=refuse(10**6, AuthenticationError("bad", "bad: permission denied")))
    node = watched.gang.nodes[0]
    node.needs_person = AuthenticationError("bad", "bad: permission denied")
    watched.gang.request_stop(force=False)
    await watched.outcome()
    assert watched.words("bad") == []


async def test_a_host_that_was_silent_hears_the_newest_word_when_it_is_back(watch: Watch) -> None:
    watched = watch(bad=hear, good=hear)
    node = next(node for node in watched.gang.nodes if node.name == "bad")
    node.silent_since = time.time()
    watched.gang.request_stop(force=False)
    await watched.wait_for("good", "stop")
    watched.gang.request_stop(force=True)
    assert watched.words("bad") == []
    node.silent_since = None
    node.on_change()
    await watched.outcome()
    assert watched.words("bad") == ["kill"]


async def test_a_board_that_waits_for_a_silent_node_holds_no_stop_back(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bool] = []

    class Board:
        wait_s = 0.01

        async def look(self) -> None:
            looks.append(True)
            await asyncio.Event().wait()

    monkeypatch.setattr(gang_watch, "RendezvousBoard", lambda *_arguments: Board())
    watched = watch(one=hear)
    for node in watched.gang.nodes:
        node.status = NodeStatus(node.key, 0, NodeState.RUNNING)
    await until(lambda: looks, "a look at the rendezvous", LIMIT_S)
    watched.gang.request_stop(force=False)
    await watched.wait_for("one", "stop")
    assert exit_code_of(await watched.outcome()) == ExitCode.CANCELLED
    assert looks == [True]


async def test_who_is_too_late_for_the_rendezvous_ends_the_attempt_as_soon_as_the_board_knows(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Board:
        wait_s = 3600.0

        async def look(self) -> str:
            await asyncio.sleep(0)
            return msg("two did not join within 9 s")

    monkeypatch.setattr(gang_watch, "RendezvousBoard", lambda *_arguments: Board())
    watched = watch(one=hear)
    for node in watched.gang.nodes:
        node.status = NodeStatus(node.key, 0, NodeState.RUNNING)
    watched.gang.nodes[0].on_change()
    outcome = await watched.outcome()
    assert (exit_code_of(outcome), outcome.message) == (ExitCode.JOB_FAILED, "two did not join within 9 s")


async def test_what_ends_an_attempt_while_ranks_still_come_is_not_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at who has come finds nobody late."""
    looks: list[None] = []

    async def nobody_is_late(_board: RendezvousBoard) -> None:
        looks.append(None)

    monkeypatch.setattr(RendezvousBoard, "look", nobody_is_late)
    job = Watched(monkeypatch, a=hear, b=hear)
    late = job.gang.nodes[1]
    late.status = NodeStatus(late.key, 1, NodeState.RUNNING)

    def looked() -> bool:
        late.on_change()
        return bool(looks)

    await until(looked, "a look at who has come")
    job.gang.watch.end_for("alert", "the queue is full")
    outcome = await asyncio.wait_for(job.task, LIMIT_S)
    assert (outcome.cause, outcome.message) == ("alert", "the queue is full")
