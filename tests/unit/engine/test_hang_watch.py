"""When an attempt hangs: what counts, what does not, and that it is told once and taken back."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from dtagent.protocol.events import EventKind
from dtagent.protocol.stacks import Frame, ProcessStacks, RankStacks, Thread
from dtagent.protocol.telemetry import GpuSample

from dttui import jobs
from dttui.diagnosis.gpu_readings import GpuPlace, GpuReadings
from dttui.diagnosis.stack_report import NodeStacks
from dttui.engine import hang
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.hang import Hang, HangWatch
from dttui.engine.nodes.node_record import Steps
from dttui.engine.nodes.node_run import NodeRun
from dttui.jobs.event_log import EventLog
from dttui.jobs.view import JobView
from dttui.planning.recovery import RecoveryPolicy
from dttui.redaction import Redaction
from tests.waiting import until

COMPUTES = GpuSample(0, utilization_percent=100, power_w=600.0, power_limit_w=700.0, memory_utilization_percent=40)
SPINS = GpuSample(0, utilization_percent=100, power_w=140.0, power_limit_w=700.0, memory_utilization_percent=0)
STUCK = ProcessStacks(7, "S", threads=[Thread("MainThread", [Frame("load", "/w/train.py", 16)], is_main=True)])


class Watched:
    """Two nodes of a rank each, a clock that is set by hand, and the watch over them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **policy: Any) -> None:
        self.now, self.asked = 1000.0, 0
        self.gpu: GpuSample | None = None
        self.looked_back_s = 0.0
        monkeypatch.setattr(hang, "time", SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.now))
        monkeypatch.setattr(hang, "ask_stacks", self._ask)
        self.directory = jobs.create("x")
        self.nodes = [SimpleNamespace(name=name, silent_since=None, is_over=False) for name in ("gpu1", "gpu2")]
        self.steps = Steps(last=4, heard_at=self.now)
        self.woken = False
        self.policy = RecoveryPolicy(**{"hang_s": 60, **policy})
        self.take_over()

    def take_over(self) -> None:
        """Let another controller watch, which finds what was told."""
        log, told = AttemptLog(EventLog(self.directory.events), 0), self.directory.read_events()
        self.watch = HangWatch(
            self.policy, self.directory, log, self._nodes, self._read_gpus, Redaction(), self._wake, told
        )

    async def after(self, seconds: float, *, is_running: bool = True) -> Hang | None:
        """Look every five seconds for so long; return the hang that was found."""
        for _ in range(int(seconds / 5)):
            self.now += 5
            self.woken = False
            found = self.watch.look(self.steps, is_running=is_running)
            if self.watch.is_asking:
                await until(lambda: self.woken, "an answer")
                found = self.watch.look(self.steps, is_running=is_running)
            if found is not None:
                return found
        return None

    def told(self) -> list[Any]:
        return [event.data for event in self.directory.read_events(EventKind.HANG)]

    def _nodes(self) -> Sequence[NodeRun]:
        return cast("Sequence[NodeRun]", self.nodes)

    def _wake(self) -> None:
        self.woken = True

    async def _read_gpus(self, nodes: Sequence[Any], seconds: float) -> list[GpuReadings]:
        self.looked_back_s = seconds
        if self.gpu is None:
            return []
        return [GpuReadings(GpuPlace(node.name, 0), rank, "", (self.gpu,)) for rank, node in enumerate(nodes)]

    async def _ask(self, nodes: Sequence[Any], *_rest: Any) -> tuple[NodeStacks, ...]:
        self.asked += 1
        return tuple(NodeStacks(node.name, (RankStacks(rank, STUCK),)) for rank, node in enumerate(nodes))


async def test_it_is_told_once_with_where_ranks_stand_and_taken_back_when_they_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Watched(monkeypatch)
    assert await job.after(55) is None
    found = await job.after(10)
    assert found is not None
    assert found.message == "no step and no line of any rank for 60 s: 2 of 2 ranks (0–1) are at train.py:16 (load)"
    assert await job.after(600) is None
    view = JobView("x")
    (event,) = job.directory.read_events(EventKind.HANG)
    view.apply(event)
    assert view.hang == found.message
    assert (job.directory.path / event.data["file"]).stat().st_mode & 0o777 == 0o600
    job.steps.heard_at = job.now + 1
    await job.after(5)
    assert [data["severity"] for data in job.told()] == ["warning", "info"]
    view.apply(job.directory.read_events(EventKind.HANG)[-1])
    assert view.hang == ""
    assert await job.after(70) is not None


async def test_the_time_before_the_first_step_has_a_limit_of_its_own_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Watched(monkeypatch)
    job.steps.last = None
    assert await job.after(3600) is None
    job = Watched(monkeypatch, hang_s=None, hang_first_s=300)
    job.steps.last = None
    assert await job.after(295) is None
    assert await job.after(10) is not None
    job = Watched(monkeypatch, hang_s=None, hang_first_s=300)
    assert await job.after(3600) is None


async def test_silence_of_a_host_a_rendezvous_and_a_controller_that_stood_still_are_no_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Watched(monkeypatch)
    job.nodes[1].silent_since = 1.0
    assert await job.after(600) is None
    job.nodes[1].silent_since = None
    assert await job.after(55) is None
    assert await job.after(600, is_running=False) is None
    assert await job.after(55) is None
    job.now += 3600
    assert await job.after(55) is None
    for node in job.nodes:
        node.is_over = True
    assert await job.after(600) is None
    assert job.asked == 0


async def test_ranks_that_print_something_while_they_are_asked_do_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Watched(monkeypatch)
    await job.after(55)
    job.now += 5
    assert job.watch.look(job.steps, is_running=True) is None
    await until(lambda: job.woken, "an answer")
    job.steps.heard_at = job.now + 1
    assert job.watch.look(job.steps, is_running=True) is None
    assert job.told() == []


async def test_another_controller_tells_a_hang_not_again_and_takes_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Watched(monkeypatch)
    assert await job.after(70) is not None
    job.take_over()
    assert await job.after(600) is None
    job.steps.heard_at = job.now + 1
    assert await job.after(10) is None
    assert await job.after(100) is not None
    told = job.told()
    assert [data["severity"] for data in told] == ["warning", "info", "warning"]
    assert told[0]["file"] != told[2]["file"]


async def test_a_hang_for_which_an_attempt_was_to_end_and_did_not_is_found_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Watched(monkeypatch, restarts_on_hang=True, max_restarts=1)
    assert await job.after(70) is not None
    job.take_over()
    assert await job.after(70) is not None


async def test_last_words_of_ranks_that_are_told_to_end_take_no_hang_back(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Watched(monkeypatch)
    assert await job.after(70) is not None
    job.steps.heard_at = job.now + 1
    assert await job.after(10, is_running=False) is None
    assert [data["severity"] for data in job.told()] == ["warning"]


async def test_what_the_gpus_did_over_the_silence_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Watched(monkeypatch, restarts_on_hang=True, max_restarts=1)
    job.gpu = SPINS
    found = await job.after(70)
    assert found is not None
    assert found.ends
    assert found.message.startswith(
        "no step and no line of any rank for 60 s, while all 2 GPUs spin (100 % busy with 20% of their power): 2 of 2"
    )
    (told,) = job.told()
    assert told["gpus"]["counts"] == {"spins": 2}
    assert told["gpus"]["gpus"][1] == {
        "node": "gpu2", "gpu": 0, "rank": 1, "use": "spins", "utilization_percent": 100, "power_share": 0.2,
        "memory_utilization_percent": 0,
    }  # fmt: skip
    assert job.looked_back_s == 60


async def test_an_attempt_whose_gpus_compute_is_not_ended_before_they_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Watched(monkeypatch, restarts_on_hang=True, max_restarts=1)
    job.gpu = COMPUTES
    found = await job.after(70)
    assert found is not None
    assert not found.ends
    assert "while all 2 GPUs compute" in found.message
    assert found.hint.startswith("`on_hang: restart` ends the attempt once they stop computing")
    assert await job.after(600) is None
    assert job.asked == 1
    job.take_over()
    assert await job.after(600) is None
    assert [(data["severity"], data["restarts"]) for data in job.told()] == [("warning", False)]
    job.gpu = SPINS
    found = await job.after(20)
    assert found is not None
    assert found.ends
    assert [(data["severity"], data["restarts"]) for data in job.told()] == [("warning", False), ("error", True)]


async def test_a_long_phase_that_computes_is_taken_back_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Watched(monkeypatch, restarts_on_hang=True, max_restarts=1)
    job.gpu = COMPUTES
    assert await job.after(70) is not None
    job.steps.heard_at, job.gpu = job.now + 1, None
    assert await job.after(50) is None
    assert [data["severity"] for data in job.told()] == ["warning", "info"]
    found = await job.after(30)
    assert found is not None
    assert found.ends
