"""When a rank is named for which the others wait: how long it takes, that it is told once, and taken back."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from dtagent.protocol.events import EventKind, Metric
from dtagent.protocol.telemetry import GpuSample

from dttui import jobs
from dttui.diagnosis.gpu_readings import GpuPlace, GpuReadings
from dttui.diagnosis.lateness import Lateness
from dttui.engine import stragglers
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.step_times import StepTimes
from dttui.engine.stragglers import Straggler, StragglerWatch
from dttui.jobs.event_log import EventLog
from dttui.planning.models import Plan
from dttui.planning.recovery import RecoveryPolicy
from tests.waiting import until


class Watched:
    """Two nodes of two ranks each, a clock that is set by hand, and what the ranks are said to be late by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, straggler_s: float | None = 120.0, **policy: Any) -> None:
        self.woken = False
        self.now, self.asked, self.shares = 1000.0, 0, {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0}
        clock = SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.now)
        monkeypatch.setattr(stragglers, "time", clock)
        monkeypatch.setattr(stragglers, "lateness_of", self._lateness_of)
        monkeypatch.setattr(stragglers, "_newest_checkpoint", self._newest_checkpoint)
        self.nodes: list[Any] = [
            SimpleNamespace(name=name, ranks=ranks, silent_since=None, is_over=False)
            for name, ranks in (("gpu1", (0, 1)), ("gpu2", (2, 3)))
        ]
        self.directory = jobs.create("x")
        self.times = StepTimes()
        self.made: dict[int, int] = {}
        self.checkpoints: dict[str, float] = {}
        self.gpus: dict[int, GpuSample] = {}
        self.ended: list[Straggler] = []
        self.spare: str | None = "gpu3"
        recovery = RecoveryPolicy(straggler_s=straggler_s, **policy)
        self.plan = cast("Plan", SimpleNamespace(recovery=recovery, nodes=()))
        self.take_over()

    def take_over(self) -> None:
        """Let another controller watch, which finds what was told."""
        log, told = AttemptLog(EventLog(self.directory.events), 0), self.directory.read_events()
        self.watch = StragglerWatch(
            self.plan,
            self.directory,
            log,
            lambda: self.nodes,
            self._read_gpus,
            self._wake,
            lambda: self.spare,
            told,
            self.times,
        )

    async def after(
        self, seconds: float, *, is_running: bool = True, may_tell: bool = True
    ) -> list[tuple[int | None, str]]:
        """Look every five seconds for so long; return all that was told, as rank and severity."""
        for _ in range(int(seconds / 5)):
            self.now += 5
            self.woken = False
            self.watch.look(is_running=is_running, may_tell=may_tell)
            if self.plan.recovery.straggler_s is not None and self.watch.wait_s is None:
                await until(lambda: self.woken, "an answer")
            if ended := self.watch.look(is_running=is_running, may_tell=may_tell):
                self.ended.append(ended)
        return [(event.rank, event.data["severity"]) for event in self.directory.read_events(EventKind.STRAGGLER)]

    def _wake(self) -> None:
        self.woken = True

    async def _read_gpus(self, nodes: Sequence[Any], _seconds: float) -> list[GpuReadings]:
        return [
            GpuReadings(GpuPlace(node.name, local), rank, "A100", (self.gpus[rank],) * 5)
            for node in nodes
            for local, rank in enumerate(node.ranks)
            if rank in self.gpus
        ]

    async def stepping(self, seconds: int, step_s: dict[int, float]) -> list[tuple[int | None, str]]:
        """Have each rank report a step in so many seconds; return what `after` does."""
        begin = self.now
        for passed in range(5, seconds + 1, 5):
            for rank, took_s in step_s.items():
                self.times.take(Metric(rank, self.made.get(rank, 0) + int(passed / took_s), time=begin + passed))
            told = await self.after(5)
        self.made = {rank: self.made.get(rank, 0) + int(seconds / took_s) for rank, took_s in step_s.items()}
        return told

    async def _newest_checkpoint(self, node: Any, _place: object) -> float | None:
        return self.checkpoints.get(node.name)

    async def _lateness_of(self, *_what: object) -> dict[int, Lateness]:
        self.asked += 1
        return {rank: Lateness(rank, share, 0.2) for rank, share in self.shares.items()} if self.shares else {}


async def test_it_is_told_once_after_its_time_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Watched(monkeypatch)
    job.shares[2] = 0.4
    assert await job.after(85) == []
    assert await job.after(40) == [(2, "warning")]
    (event,) = job.directory.read_events(EventKind.STRAGGLER)
    assert (event.node, event.data["share"], event.data["late_s"]) == ("gpu2", 0.4, 0.2)
    assert await job.after(600) == [(2, "warning")]
    job.take_over()
    assert await job.after(600) == [(2, "warning")]
    job.shares[2] = 0.0
    assert await job.after(150) == [(2, "warning"), (2, "info")]


async def test_while_a_link_is_suspected_nobody_is_named_and_the_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Watched(monkeypatch)
    job.shares[2] = 0.4
    assert await job.after(300, may_tell=False) == []
    assert await job.after(35) == [(2, "warning")]


async def test_who_is_late_now_and_then_and_whom_little_is_waited_for_is_not_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Watched(monkeypatch)
    job.shares[1] = 0.05
    assert await job.after(600) == []
    for rank in (0, 1, 2, 3) * 3:
        job.shares = dict.fromkeys(range(4), 0.0) | {rank: 0.5}
        await job.after(60)
    assert await job.after(5) == []


async def test_no_question_is_asked_where_none_is_wanted_or_nothing_would_be_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Watched(monkeypatch, straggler_s=None)
    assert job.watch.wait_s is None
    await job.after(300)
    job = Watched(monkeypatch)
    await job.after(300, is_running=False)
    job.nodes[1].silent_since = 1.0
    await job.after(300)
    assert job.asked == 0
    job.nodes[1].silent_since = None
    job.shares = {}
    assert await job.after(300) == []
    assert job.asked == 10


async def test_a_spare_takes_the_place_once_there_is_a_checkpoint_that_is_newer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Watched(monkeypatch, replaces_stragglers=True)
    job.shares[2] = 0.4
    job.checkpoints = {"gpu1": job.now + 60}
    await job.after(300)
    assert job.ended == []
    job.checkpoints = {"gpu1": job.now, "gpu2": 1.0}
    await job.after(60)
    assert job.ended == []
    job.checkpoints = {"gpu1": job.now}
    await job.after(30)
    assert [(item.node, str(item.message)) for item in job.ended] == [
        ("gpu2", "gpu3 takes the place of gpu2, for whose rank 2 the others wait")
    ]


async def test_where_no_spare_would_take_the_place_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Watched(monkeypatch, replaces_stragglers=True, spares=("gpu3",))
    job.spare = None
    job.shares[2] = 0.4
    await job.after(300)
    job.checkpoints = {"gpu1": job.now}
    await job.after(300)
    assert job.ended == []


async def test_a_gpu_that_is_slower_than_the_others_is_named_with_what_it_costs_and_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Watched(monkeypatch)
    job.shares = {}  # No collectives are known, as of a framework without a flight recorder.
    fast = GpuSample(0, utilization_percent=99, sm_clock_mhz=1400, temperature_c=60)
    slow = GpuSample(0, utilization_percent=99, sm_clock_mhz=700, temperature_c=61, throttle_reasons=["power brake"])
    job.gpus = dict.fromkeys(range(4), fast) | {3: slow}
    assert await job.after(85) == []
    assert await job.after(40) == [(3, "warning")]
    (event,) = job.directory.read_events(EventKind.STRAGGLER)
    assert (event.node, event.data["gpu"], event.data["by"], event.data["share"]) == ("gpu2", 1, "clock", 0.5)
    assert event.data["since"] == 975
    assert event.message == (
        "for 120 s GPU 1 on gpu2 (rank 3) has run at 700 MHz, the others at 1400 MHz, which costs up to 50% of the "
        "time (held back by power brake)"
    )
    job.take_over()
    assert await job.after(600) == [(3, "warning")]
    job.gpus[3] = fast
    assert await job.after(150) == [(3, "warning"), (3, "info")]
    last = job.directory.read_events(EventKind.STRAGGLER)[-1]
    assert last.message == "GPU 1 on gpu2 is as fast as the others again"


async def test_a_gpu_that_is_slow_now_and_then_or_while_others_rest_is_not_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Watched(monkeypatch)
    fast, slow = (GpuSample(0, utilization_percent=99, sm_clock_mhz=clock) for clock in (1400, 700))
    for rank in (0, 1, 2, 3) * 2:
        job.gpus = dict.fromkeys(range(4), fast) | {rank: slow}
        await job.after(60)
    job.gpus = dict.fromkeys(range(4), fast) | {0: slow, 1: GpuSample(0, utilization_percent=3, sm_clock_mhz=210)}
    assert await job.after(600) == []


async def test_a_rank_for_which_the_others_wait_is_told_once_more_with_its_gpu_and_no_other_gpu_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Watched(monkeypatch)
    fast, slow = (GpuSample(0, utilization_percent=99, sm_clock_mhz=clock) for clock in (1400, 700))
    job.shares[2] = 0.4
    await job.after(150)
    job.gpus = dict.fromkeys(range(4), fast) | {1: slow}
    assert await job.after(300) == [(2, "warning")]
    job.gpus = dict.fromkeys(range(4), fast) | {2: slow}
    assert await job.after(300) == [(2, "warning"), (2, "warning")]
    assert [event.data.get("by") for event in job.directory.read_events(EventKind.STRAGGLER)] == [None, "clock"]
    job.shares = dict.fromkeys(range(4), 0.0) | {0: 0.4}
    assert await job.after(300) == [(2, "warning"), (2, "warning"), (0, "warning")]


async def test_a_spare_takes_the_place_of_a_host_whose_gpu_is_slow_and_of_none_that_is_fast_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fast, slow = (GpuSample(0, utilization_percent=99, sm_clock_mhz=clock) for clock in (1400, 700))
    job = Watched(monkeypatch, replaces_stragglers=True, spares=("gpu3",))
    job.gpus = dict.fromkeys(range(4), fast) | {2: slow}
    await job.after(150)
    assert job.ended == []
    job.gpus[2] = fast
    job.checkpoints = {"gpu1": job.now}
    await job.after(60)
    assert job.ended == []
    job.gpus[2] = slow
    await job.after(30)
    assert [(item.node, str(item.message)) for item in job.ended] == [
        ("gpu2", "gpu3 takes the place of gpu2, whose GPU 0 is slower than the others")
    ]


async def test_of_ranks_that_tell_of_no_collective_one_is_named_by_its_steps_and_of_others_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, slow = Watched(monkeypatch, replaces_stragglers=True, spares=("gpu3",)), {0: 1.0, 1: 1.0, 2: 2.0, 3: 1.0}
    job.shares = {}
    assert await job.stepping(300, dict.fromkeys(range(4), 1.0)) == []
    assert await job.stepping(200, slow) == [(2, "warning")]
    (event,) = job.directory.read_events(EventKind.STRAGGLER)
    assert event.message == "rank 2 on gpu2 takes 1.00 s longer for a step than the others, 50% of its time"
    job.checkpoints = {"gpu1": job.now, "gpu2": job.now}
    await job.stepping(100, slow)
    assert str(job.ended[0].message) == "gpu3 takes the place of gpu2, whose rank 2 is slower than the others"
    job.take_over()
    assert await job.stepping(300, dict.fromkeys(range(4), 1.0)) == [(2, "warning"), (2, "info")]
    assert job.directory.read_events(EventKind.STRAGGLER)[-1].message == "rank 2 is as fast as the others again"
    job.shares = dict.fromkeys(range(4), 0.0)
    await job.stepping(60, slow)
    job.shares = {}
    assert len(await job.stepping(600, slow)) == 2, "ranks that have told of collectives are asked for those alone"
