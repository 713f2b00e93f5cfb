"""Which hosts a job that waits begins on where others do as well, after what attempts that are fakes have come to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from dtagent.protocol.events import EventKind, JobState

from dttui import jobs
from dttui.engine import job_run, turn
from dttui.engine.context import JobContext
from dttui.engine.decision import Decision, Restart, decide
from dttui.engine.job_run import JobRun
from dttui.engine.recovered import PROMISE, RecoveredState
from dttui.inventory.models import Inventory
from dttui.jobs.event_log import EventLog
from dttui.jobs.outcome import TAKEN, UNFIT, UNREACHABLE, AttemptOutcome, NodeEnd, NodeOutcome, Stage
from dttui.planning.lineup import Lineup
from dttui.planning.models import Plan
from dttui.planning.planner import plan
from dttui.planning.recovery import RecoveryPolicy, policy_of
from dttui.preflight.preflight import Replan
from dttui.spec.failure_causes import PREFLIGHT
from dttui.spec.findings import error
from dttui.spec.models import Cluster, Node, Recovery, Run
from dttui.transport.base import Nobody
from tests.fake_transport import FakeTransport
from tests.unit.seed_cluster import environment, make_job

INVENTORY = Inventory(
    environments=tuple(
        environment(name, gpus=2, address=f"10.0.0.{i}", python="/py") for i, name in enumerate("abcds", 1)
    )
)
UNTOUCHED = NodeOutcome(end=NodeEnd.UNTOUCHED)
End = Callable[[int, Plan], AttemptOutcome]


class FakePlaces:
    """Has room on hosts as a test says, each time that the job lines up."""

    rooms: ClassVar[list[set[str]]] = []
    lined_up: ClassVar[list[list[str]]] = []
    """The hosts at which it stood, each time."""

    def __init__(
        self,
        _job: object,
        plan: Plan,
        _attempt: int,
        _asked_at: float,
        hosts: Collection[str] | None = None,
        others: Sequence[str] = (),
        pass_over: object = None,
    ) -> None:
        self._named = [node.name for node in plan.nodes if hosts is None or node.name in hosts]
        self._others = [*others]
        self.is_narrowed = False

    @property
    def _room(self) -> set[str]:
        return FakePlaces.rooms[min(len(FakePlaces.lined_up), len(FakePlaces.rooms)) - 1]

    @property
    def have_room(self) -> bool:
        return len(self._room & {*self._named, *self._others}) >= len(self._named)

    async def wait(self, _stopping: asyncio.Event) -> bool:
        FakePlaces.lined_up.append([*self._named, *self._others])
        assert self.have_room, "the job would wait for ever"
        return True

    async def look(self, _stopping: asyncio.Event) -> bool:
        return False

    def choice(self) -> dict[str, str]:
        lacking = [name for name in self._named if name not in self._room]
        return dict(zip(lacking, (name for name in self._others if name in self._room), strict=False))

    async def narrow(self, _hosts: Collection[str]) -> None:
        self.is_narrowed = True

    async def leave(self, _hosts: Collection[str] | None = None) -> None:
        pass


class Waited:
    """A job on `a` and `b`, which others stand for, whose attempts ended as a test says."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        ends: Sequence[End],
        rooms: Sequence[set[str]],
        candidates: tuple[str, ...] = ("c", "d"),
        recovery: Recovery | None = None,
        unlike: Collection[str] = (),
    ) -> None:
        recovery = recovery or Recovery()
        cluster = Cluster(nodes=(Node(id="a"), Node(id="b")), candidates=candidates)
        self._job = make_job(cluster=cluster, recovery=recovery, run=Run(script="train.py", workdir="/srv"))
        self._unlike = unlike
        self.began: list[list[str]] = []
        directory = jobs.create("x")
        self._log = EventLog(directory.events)
        context = JobContext(
            directory, self._log, FakeTransport({}), Nobody(), INVENTORY, self._replan_for(Lineup()), Path(), {},
            replan_for=self._replan_for, asked_at=time.time(), is_queued=True,
        )  # fmt: skip
        left = iter(ends)

        def begin(_job: JobContext, recovered: RecoveredState, **_seams: Any) -> SimpleNamespace:
            self.began.append([node.name for node in recovered.plan.nodes])
            end = next(left)

            async def run() -> AttemptOutcome:
                return end(recovered.attempt, recovered.plan)

            return SimpleNamespace(plan=recovered.plan, nodes=[], run=run)

        monkeypatch.setattr(job_run, "Attempt", begin)
        monkeypatch.setattr(turn, "QueuePlaces", FakePlaces)
        monkeypatch.setattr(turn, "RETRY_S", 0.01)
        FakePlaces.rooms, FakePlaces.lined_up = [*rooms], []
        first = RecoveredState.new(plan(self._job, INVENTORY))
        self._run = JobRun(context, first, (), policy_of(recovery, INVENTORY), _at_once)

    async def end(self) -> AttemptOutcome:
        return await self._run.run()

    @property
    def told(self) -> dict[str, str]:
        """Host that is passed over → what was told of it."""
        found = [event for event in self._log.every() if event.kind is EventKind.FINDING]
        return {event.data["subject"]: event.message for event in found if event.data["code"] == "candidate-unfit"}

    def _replan_for(self, lineup: Lineup) -> Replan:
        def replan(known: Inventory, _facts: object, _links: object) -> Plan:
            made = plan(lineup.apply(self._job, known), known)
            taking_part = {node.name for node in made.nodes}
            if 0 < len(taking_part & {*self._unlike}) < len(taking_part):
                made = made.model_copy(update={"findings": (error("drift", "gpus", "no two kinds of GPUs"),)})
            return made

        return replan


def _at_once(outcome: AttemptOutcome, policy: RecoveryPolicy, history: Sequence[AttemptOutcome]) -> Decision:
    decided = decide(outcome, policy, history)
    return replace(decided, delay_s=0.0) if isinstance(decided, Restart) else decided


def refusing(**why: str) -> End:
    """Return the end of an attempt whose checks have refused hosts: host → code of why, each in its own words."""
    nodes = {
        name: UNTOUCHED.model_copy(update={"why": code, "reason": f"{name} is {code}"}) for name, code in why.items()
    }
    return lambda number, made: _ended(number, made, Stage.PREFLIGHT, nodes)


def not_started(**nodes: NodeOutcome) -> End:
    """Return the end of an attempt that could not be started."""
    return lambda number, made: _ended(number, made, Stage.LAUNCH, nodes)


def _ended(number: int, made: Plan, stage: Stage, nodes: Mapping[str, NodeOutcome]) -> AttemptOutcome:
    everyone = {node.name: UNTOUCHED for node in made.nodes}
    cause = PREFLIGHT if stage is Stage.PREFLIGHT else "launch"
    words = {"message": "they do not go together", "cause": cause}
    return AttemptOutcome(attempt=number, state=JobState.FAILED, stage=stage, nodes={**everyone, **nodes}, **words)


def well(number: int, _plan: Plan) -> AttemptOutcome:
    return AttemptOutcome(attempt=number, state=JobState.SUCCEEDED)


@pytest.mark.parametrize("why", [TAKEN, UNREACHABLE])
async def test_one_that_only_lost_its_gpus_or_its_link_is_waited_for_again(
    monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    job = Waited(monkeypatch, [refusing(c=why), well], [{"a", "c"}])
    assert (await job.end()).succeeded
    assert job.began == [["a", "c"], ["a", "c"]]
    assert (job.told, FakePlaces.lined_up[-1]) == ({}, ["a", "b", "c", "d"])


async def test_of_several_that_are_unfit_each_is_told_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Waited(monkeypatch, [refusing(c=UNFIT, d=UNFIT), well], [{"c", "d"}, {"a", "b"}])
    assert (await job.end()).succeeded
    assert FakePlaces.lined_up[-1] == ["a", "b"]
    for name in ("c", "d"):
        assert job.told[name] == f"{name} cannot take part, and is not waited for any more: {name} is {UNFIT}"


async def test_who_was_promised_a_place_has_it_though_others_did_as_well_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recovery = Recovery(on_node_failure="replace", max_restarts=1, spares=("s",))
    ends = [not_started(a=NodeOutcome(end=NodeEnd.LOST)), well]
    job = Waited(monkeypatch, ends, [{"a", "b"}, {*"abcds"}], candidates=("c", "s"), recovery=recovery)
    assert (await job.end()).succeeded
    assert job.began == [["a", "b"], ["s", "b"]]
    assert FakePlaces.lined_up[-1] == ["s", "b"]


async def test_what_was_to_go_on_without_a_host_does_so_though_others_did_as_well_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recovery = Recovery(on_node_failure="continue", max_restarts=1)
    ends = [not_started(b=NodeOutcome(end=NodeEnd.LOST)), well]
    job = Waited(monkeypatch, ends, [{"a", "b"}, {*"abcds"}], recovery=recovery)
    assert (await job.end()).succeeded
    assert job.began == [["a", "b"], ["a"]]


async def test_a_choice_is_free_again_after_the_gpus_were_lost_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Waited(monkeypatch, [not_started(), well], [{"a", "c"}, {"a", "d"}])
    assert (await job.end()).succeeded
    assert job.began == [["a", "c"], ["a", "d"]]


async def test_those_that_do_not_go_together_with_the_others_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Waited(monkeypatch, [refusing(), well], [{"a", "c"}, {"a", "d"}])
    assert (await job.end()).succeeded
    assert job.began == [["a", "c"], ["a", "d"]]
    assert "they do not go together" in job.told["c"]


async def test_a_job_that_only_fails_on_the_hosts_that_it_names_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Waited(monkeypatch, [refusing()], [{"a", "b"}])
    assert (await job.end()).state is JobState.FAILED
    assert (job.began, job.told) == ([["a", "b"]], {})


async def test_a_choice_with_which_the_job_cannot_be_planned_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Waited(monkeypatch, [well], [{"a", "c"}, {"a", "d"}], unlike=("c",))
    assert (await job.end()).succeeded
    assert job.began == [["a", "d"]]
    assert "no two kinds of GPUs" in job.told["c"]


@pytest.mark.parametrize("lineup", [{}, {"seats": {"a": {"environment": "c"}}}])
def test_whoever_takes_over_after_a_turn_plans_with_those_whose_turn_it_was(lineup: dict[str, Any]) -> None:
    directory = jobs.create("x")
    job = make_job("a", "c", run=Run(script="train.py", workdir="/srv"))
    directory.plan.write_text(plan(job, INVENTORY).model_dump_json())
    log = EventLog(directory.events)
    log.add(EventKind.JOB_STATE, "submitted", data={"state": JobState.PENDING.value})
    assert not RecoveredState.read(directory, 0.0, is_queued=True).may_lack_plan
    data = {"state": JobState.PENDING.value, PROMISE: {"lineup": lineup}}
    log.add(EventKind.JOB_STATE, "its turn has come", data=data)
    assert RecoveredState.read(directory, 0.0, is_queued=True).may_lack_plan
