"""What a job run asks of attempts that are fakes: who would take a place, and which places in line are kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
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
from dttui.engine.recovered import RecoveredState
from dttui.errors import UsageError
from dttui.inventory.models import Inventory
from dttui.jobs.event_log import EventLog
from dttui.jobs.outcome import UNFIT, AttemptOutcome, NodeEnd, NodeOutcome, Stage
from dttui.planning.lineup import Lineup
from dttui.planning.models import Plan
from dttui.planning.planner import plan
from dttui.planning.recovery import RecoveryPolicy
from dttui.preflight.preflight import Replan
from dttui.spec.failure_causes import STRAGGLER
from dttui.spec.models import Run
from dttui.transport.base import Nobody
from tests.fake_transport import FakeTransport
from tests.unit.seed_cluster import environment, make_job

JOB = make_job("a", "b", run=Run(script="train.py", workdir="/srv"))
INVENTORY = Inventory(
    environments=(
        *(environment(name, gpus=2, address=f"10.0.0.{i}", python="/py") for i, name in enumerate("abcd", 1)),
        environment("small", gpus=1, address="10.0.0.9", python="/py"),
    )
)
CLEAN = NodeOutcome(end=NodeEnd.CLEAN)
End = Callable[["FakeAttempt"], AttemptOutcome]


class FakeAttempt:
    """Ends as its script says."""

    def __init__(self, ends: Sequence[End], waiters: Sequence[str], recovered: RecoveredState, **seams: Any) -> None:
        self.plan, self.number = recovered.plan, recovered.attempt
        self.nodes = [
            SimpleNamespace(name=node.name, record=SimpleNamespace(has_waiters=node.name in waiters))
            for node in recovered.plan.nodes
        ]
        self.next_spare: Callable[[], str | None] = seams["next_spare"]
        self._end = ends[recovered.attempt]

    async def run(self) -> AttemptOutcome:
        return self._end(self)


class FakePlaces:
    """Writes down where a job stands in line, and where it has given its place up."""

    standing: ClassVar[set[str]] = set()
    given_up: ClassVar[set[str]] = set()

    def __init__(self, _job: object, _plan: object, _attempt: int, _asked_at: float, hosts: Collection[str]) -> None:
        self._hosts = hosts

    def stand(self) -> None:
        FakePlaces.standing = {*self._hosts}

    async def leave(self, hosts: Collection[str] | None = None) -> None:
        FakePlaces.standing -= {*(self._hosts if hosts is None else hosts)}

    async def give_up(self) -> None:
        FakePlaces.given_up |= {*self._hosts}


class Ran:
    """A job that ran as its attempts' script says, and may be restarted."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        ends: Sequence[End],
        spares: Sequence[str],
        waiters: Sequence[str] = (),
        delay_s: float = 0.0,
    ) -> None:
        directory = jobs.create("x")
        self.lineups: list[list[str]] = []
        self.spares: list[str | None] = []
        self.log = EventLog(directory.events)
        self.policy = RecoveryPolicy(action="replace", max_restarts=1, spares=tuple(spares))
        job = JobContext(
            directory, self.log, FakeTransport({}), Nobody(), INVENTORY, self._replan_for(Lineup()), Path(), {},
            replan_for=self._replan_for, asked_at=time.time() if waiters else None,
        )  # fmt: skip

        def begin(_job: JobContext, recovered: RecoveredState, **seams: Any) -> FakeAttempt:
            attempt = FakeAttempt(ends, waiters, recovered, **seams)
            self.lineups.append([node.name for node in attempt.nodes])
            self.spares.append(attempt.next_spare())
            return attempt

        monkeypatch.setattr(job_run, "Attempt", begin)
        monkeypatch.setattr(turn, "QueuePlaces", FakePlaces)
        FakePlaces.standing, FakePlaces.given_up = set(), set()
        self._run = JobRun(job, RecoveredState.new(plan(JOB, INVENTORY)), (), self.policy, after(delay_s))

    async def end(self) -> AttemptOutcome:
        return await self._run.run()

    @property
    def codes(self) -> list[tuple[str, str]]:
        found = [event.data for event in self.log.every() if event.kind is EventKind.FINDING]
        return [(data["code"], data["subject"]) for data in found]

    @staticmethod
    def _replan_for(lineup: Lineup) -> Replan:
        def replan(known: Inventory, _facts: object, _links: object) -> Plan:
            if any(seat is not None and seat.environment == "d" for seat in lineup.seats.values()):
                raise UsageError("no such file")
            return plan(lineup.apply(JOB, known), known)

        return replan


def after(delay_s: float) -> job_run.Decide:
    """Return what decides as always, but for how long it waits."""

    def decided(outcome: AttemptOutcome, policy: RecoveryPolicy, history: Sequence[AttemptOutcome]) -> Decision:
        found = decide(outcome, policy, history)
        return replace(found, delay_s=delay_s) if isinstance(found, Restart) else found

    return decided


def slow(attempt: FakeAttempt, name: str, step: int) -> AttemptOutcome:
    """Return the outcome of an attempt that was ended for a slow node."""
    nodes = {node.name: CLEAN for node in attempt.nodes}
    number = attempt.number
    return AttemptOutcome(
        attempt=number, state=JobState.FAILED, nodes=nodes, cause=STRAGGLER, blamed=(name,), last_step=step
    )


def refused(attempt: FakeAttempt, *names: str) -> AttemptOutcome:
    """Return the outcome of an attempt whose checks have refused nodes."""
    untouched = NodeOutcome(end=NodeEnd.UNTOUCHED)
    nodes = {node.name: untouched for node in attempt.nodes}
    nodes |= {name: untouched.model_copy(update={"why": UNFIT}) for name in names}
    return AttemptOutcome(
        attempt=attempt.number, state=JobState.FAILED, stage=Stage.PREFLIGHT, nodes=nodes, cause="preflight"
    )


def well(attempt: FakeAttempt) -> AttemptOutcome:
    return AttemptOutcome(attempt=attempt.number, state=JobState.SUCCEEDED)


async def test_a_spare_that_a_check_has_refused_or_that_is_too_small_is_none_that_would_take_a_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends: list[End] = [lambda it: slow(it, "a", 9), lambda it: refused(it, "c"), well]
    job = Ran(monkeypatch, ends, ("c", "small"))
    assert (await job.end()).succeeded
    assert job.lineups == [["a", "b"], ["c", "b"], ["c", "b"]]
    assert job.spares == ["c", "small", None]
    assert ("spare-unfit", "small") in job.codes


async def test_a_place_in_line_is_kept_where_the_spare_for_its_host_turns_out_to_be_of_no_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ends_well(attempt: FakeAttempt) -> AttemptOutcome:
        assert FakePlaces.standing == {"a"}
        return well(attempt)

    job = Ran(monkeypatch, [lambda it: slow(it, "a", 9), ends_well], ("small",), waiters=("a",))
    assert (await job.end()).succeeded
    assert FakePlaces.given_up == set()


async def test_a_place_in_line_is_given_up_where_a_spare_takes_the_hosts_place_and_the_others_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ends_well(attempt: FakeAttempt) -> AttemptOutcome:
        assert FakePlaces.standing == {"b"}
        return well(attempt)

    job = Ran(monkeypatch, [lambda it: slow(it, "a", 9), ends_well], ("small", "c"), waiters=("a", "b"))
    assert (await job.end()).succeeded
    assert job.lineups == [["a", "b"], ["c", "b"]]
    assert FakePlaces.given_up == {"a"}


async def test_all_places_in_line_are_given_up_where_no_attempt_follows_since_none_can_be_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Ran(monkeypatch, [lambda it: slow(it, "a", 9)], ("d",), waiters=("a", "b"))
    assert "another attempt cannot be planned: no such file" in (await job.end()).message
    assert (FakePlaces.standing, FakePlaces.given_up) == (set(), {"a", "b"})


async def test_a_delay_is_up_to_a_quarter_shorter_or_longer_so_that_jobs_do_not_begin_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds: list[tuple[float, float]] = []

    def longest(low: float, high: float) -> float:
        bounds.append((low, high))
        return high

    monkeypatch.setattr("random.uniform", longest)
    job = Ran(monkeypatch, [lambda it: slow(it, "a", 9), well], ("c",), delay_s=0.2)
    assert (await job.end()).succeeded
    (promise,) = (event for event in job.log.every() if event.data.get("state") == JobState.RESTARTING)
    assert bounds == [(0.75, 1.25)]
    assert promise.data["until"] - promise.time == pytest.approx(0.25, abs=0.1)
