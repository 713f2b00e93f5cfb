"""Alerts: what raises one, what does not, and that none is told over and over."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from dtagent.protocol.events import Event, EventKind, Metric
from dtagent.protocol.telemetry import GpuSample, HostSample

from dttui import jobs
from dttui.engine.alerts.alert_watch import BURST, MAX_GAP_S, REARM_S, AlertWatch
from dttui.engine.alerts.event_watch import EventWatch, WatchedLog
from dttui.jobs.metrics import MetricStream
from dttui.spec.models import Alert, Job, Monitoring
from tests.clock import Clock
from tests.waiting import until

Told = list[tuple[str, dict[str, Any]]]


def watch(*alerts: dict[str, str], secrets: tuple[str, ...] = ()) -> tuple[AlertWatch, Told]:
    """Return a watch, and the message and data of what it tells."""
    told: Told = []

    def add(kind: EventKind, message: str, **fields: Any) -> None:
        told.append((message, {"kind": kind, **fields}))

    return AlertWatch([Alert(**item) for item in alerts], add, secrets), told


def prepared(node: str, gpu_ids: list[int]) -> Event:
    return Event(0, 0.0, EventKind.NODE_STATE, "ready", 0, node, data={"state": "prepared", "gpu_ids": gpu_ids})


def node_state(node: str, state: str, message: str = "") -> Event:
    return Event(0, 0.0, EventKind.NODE_STATE, message, 0, node, data={"state": state})


def heat(at: float, *temperatures: int | None) -> HostSample:
    gpus = [GpuSample(index, temperature_c=value) for index, value in enumerate(temperatures)]
    return HostSample(int(at), at, gpus=gpus)


def test_a_line_that_matches_is_told_with_its_rank_and_no_secret() -> None:
    alerts, told = watch({"log": r"CUDA error: \w+"}, secrets=("sesame-opens",))
    alerts.see_log("gpu1", "3.err", b"fine\nCUDA err")
    assert told == []
    alerts.see_log("gpu1", "3.err", b"or: unspecified with sesame-opens\n\x1b[2Jmore\n")
    ((message, event),) = told
    assert message == r"CUDA error: \w+: rank 3 on gpu1 printed: CUDA error: unspecified with •••"
    assert (event["kind"], event["node"], event["rank"]) == (EventKind.ALERT, "gpu1", 3)
    assert event["data"]["stream"] == "3.err"


def test_a_line_that_repeats_is_told_once_and_counted(clock: Clock) -> None:
    alerts, told = watch({"log": "NCCL WARN", "name": "nccl", "every": "1s"})
    alerts.see_log("gpu1", "launcher.err", b"NCCL WARN\n" * 50)
    assert [message for message, _event in told] == ["nccl: the launcher on gpu1 printed: NCCL WARN"]
    clock.now_s += 1
    alerts.see_log("gpu1", "launcher.err", b"NCCL WARN\n")
    assert told[-1][1]["data"]["suppressed"] == 49


def test_a_thousand_ranks_that_print_the_same_are_a_few_events() -> None:
    alerts, told = watch({"log": "error"})
    for rank in range(1000):
        alerts.see_log("gpu1", f"{rank}.err", b"an error\n")
    assert len(told) == BURST


def test_a_metric_beyond_its_threshold_is_told_with_its_step() -> None:
    alerts, told = watch({"metric": "loss > 10"}, {"metric": "eval/accuracy <= 0.5", "name": "accuracy"})
    for step, loss in enumerate([9.0, 10.0, 11.5, 12.0]):
        alerts.see_metric("gpu1", Metric(0, step, loss))
    alerts.see_metric("gpu1", Metric(0, 4, extra={"eval/accuracy": 0.25, "loss > 10": 1.0}))
    alerts.see_metric("gpu1", Metric(0, 5))
    assert [message for message, _event in told] == [
        "loss > 10: 11.5, rank 0 on gpu1",
        "accuracy: 0.25, rank 0 on gpu1",
    ]
    assert told[0][1]["data"] == {
        "alert": "loss > 10", "severity": "warning", "metric": "loss", "value": 11.5, "threshold": 10.0, "step": 2,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["lr", "learning_rate", "grad_norm", "gradient_norm", "tokens_per_s_per_gpu", "step"])
def test_a_metric_goes_by_the_name_that_a_script_reports_it_under(name: str) -> None:
    alerts, told = watch({"metric": f"{name} > 10"})
    for metric in MetricStream().feed(f'{{"{name}": 12}}\n'.encode(), 0, 1.0, world_size=2):
        alerts.see_metric("gpu1", metric)
    assert [message for message, _event in told] == [f"{name} > 10: 12, rank 0 on gpu1"]


def test_only_gpus_of_the_job_count() -> None:
    alerts, told = watch({"metric": "gpu.temperature > 85"})
    alerts.see_event(prepared("gpu1", [1]))
    alerts.see_sample("gpu1", heat(1.0, 99, 80))
    assert told == []
    alerts.see_sample("gpu1", heat(2.0, 99, 91))
    alerts.see_sample("gpu2", heat(2.0, 99, 99))
    assert [message for message, _event in told] == ["gpu.temperature > 85: 91 °C, GPU 1 on gpu1"]


def test_a_condition_has_to_hold_without_a_break() -> None:
    alerts, told = watch({"metric": "gpu.temperature < 5 for 1m"})
    alerts.see_event(prepared("gpu1", [0]))
    for at in range(1000, 1055):
        alerts.see_sample("gpu1", heat(at, 1))
    alerts.see_sample("gpu1", heat(1055, 70))
    for at in range(1056, 1116):
        alerts.see_sample("gpu1", heat(at, 1))
    assert told == []
    alerts.see_sample("gpu1", heat(1116, 1))
    alerts.see_sample("gpu1", heat(1117, None))
    assert len(told) == 1


def test_a_time_without_readings_proves_nothing() -> None:
    alerts, told = watch({"metric": "host.cpu < 5 for 2m"})
    for at in (1000.0, 1001.0, 1001.0 + MAX_GAP_S + 60, 1001.0 + MAX_GAP_S + 119):
        alerts.see_sample("gpu1", HostSample(1, at, cpu_percent=1.0))
    assert told == []


def test_a_value_that_sways_about_its_threshold_is_told_once(clock: Clock) -> None:
    alerts, told = watch({"metric": "gpu.temperature > 85", "every": "1s"})
    alerts.see_event(prepared("gpu1", [0]))
    for at in range(1000, 1200):
        alerts.see_sample("gpu1", heat(at, 86 if at % 3 else 84))
    assert len(told) == 1
    clock.now_s += 1
    for later in (1201.0, 1201.0 + REARM_S):
        alerts.see_sample("gpu1", heat(later, 70))
    alerts.see_sample("gpu1", heat(1300, 90))
    assert len(told) == 2


def test_states_of_job_node_and_rank_are_told_once_each() -> None:
    alerts, told = watch({"state": "node unknown"}, {"state": "job failed"}, {"state": "rank failed", "name": "rank"})
    for message in ("no word for 3 s", "no word for 9 s"):
        alerts.see_event(node_state("gpu1", "unknown", message))
    alerts.see_event(Event(7, 0.0, EventKind.RANK_FAILED, "rank 2 broke", 0, "gpu1", 2))
    alerts.see_event(Event(8, 0.0, EventKind.JOB_STATE, "it broke", data={"state": "FAILED"}))
    alerts.see_event(Event(9, 0.0, EventKind.OUTCOME, "it broke", data={"state": "FAILED"}))
    assert [(message, event["node"], event["rank"]) for message, event in told] == [
        ("node unknown: no word for 3 s", "gpu1", None),
        ("rank: rank 2 broke", "gpu1", 2),
        ("job failed: it broke", None, None),
    ]


@pytest.mark.parametrize(
    ("state", "event", "severity"),
    [
        ("job succeeded", "SUCCEEDED", "info"),
        ("job running", "RUNNING", "info"),
        ("job failed", "FAILED", "warning"),
        ("job cancelled", "CANCELLED", "warning"),
    ],
)
def test_a_state_that_is_hoped_for_is_no_warning(state: str, event: str, severity: str) -> None:
    alerts, told = watch({"state": state})
    alerts.see_event(Event(0, 0.0, EventKind.JOB_STATE, "so it is", 0, data={"state": event}))
    assert [item["data"]["severity"] for _message, item in told] == [severity]


async def test_a_state_that_has_to_last_is_told_only_where_it_does() -> None:
    alerts, told = watch({"state": "node unknown for 0.05s"})
    alerts.see_event(node_state("gpu1", "unknown"))
    alerts.see_event(node_state("gpu2", "unknown", "no word from gpu2"))
    alerts.see_event(node_state("gpu1", "running"))
    await until(lambda: told, "the alert")
    assert [message for message, _event in told] == ["node unknown for 0.05s: no word from gpu2"]
    later, told_later = watch({"state": "node unknown for 0.05s"})
    for each in (alerts, later):
        each.see_event(node_state("gpu3", "unknown"))
    alerts.close()
    await until(lambda: told_later, "the alert of those that were not closed")
    assert len(told) == 1


@pytest.fixture
async def timers(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return how much is waited for, so that no time has to pass to know it."""
    loop = asyncio.get_running_loop()
    call_later, made = loop.call_later, list[asyncio.TimerHandle]()

    def counted(delay: float, call: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
        made.append(call_later(delay, call, *arguments))
        return made[-1]

    monkeypatch.setattr(loop, "call_later", counted)
    return lambda: sum(not timer.cancelled() and timer.when() > loop.time() for timer in made)


async def test_steps_that_stand_still_are_told_once_whatever_else_ranks_report(timers: Callable[[], int]) -> None:
    alerts, told = watch({"state": "steps stalled for 1s", "every": "0s"})
    alerts.see_metric("gpu1", Metric(rank=0, extra={"queue": 1.0}))
    assert timers() == 0  # Before the first step a script loads and compiles.
    for step in (5, 1, 2, 3):  # It counts anew in each epoch.
        alerts.see_metric("gpu1", Metric(rank=0, step=step))
        assert timers() == 1
    began = asyncio.get_running_loop().time()
    while not told:
        alerts.see_metric("gpu1", Metric(rank=0, step=3, extra={"queue": 1.0}))
        assert asyncio.get_running_loop().time() < began + 30
        await asyncio.sleep(0.02)
    ((message, event),) = told
    assert message == "steps stalled for 1s: no step for 1 s, since step 3"
    assert (event["data"]["severity"], event["data"]["step"]) == ("warning", 3)
    alerts.see_metric("gpu1", Metric(rank=0, step=4))
    await until(lambda: len(told) == 2, "the next time")


async def test_of_a_host_that_is_silent_nobody_knows_whether_it_makes_steps(timers: Callable[[], int]) -> None:
    alerts, told = watch({"state": "steps stalled for 5s"})
    alerts.begin(0, None)
    alerts.see_metric("gpu1", Metric(rank=0, step=1))
    assert timers() == 1
    alerts.see_event(node_state("gpu2", "unknown"))
    assert timers() == 0
    alerts.see_event(node_state("gpu2", "running"))
    assert timers() == 1
    alerts.see_metric("gpu1", Metric(rank=0, step=2))
    assert timers() == 1
    assert told == []
    alerts.begin(1, None)
    assert timers() == 0  # Of the next attempt there is no step yet.


def test_an_expression_that_never_ends_is_given_up_and_told_once() -> None:
    alerts, told = watch({"log": r"(a+)+$", "name": "evil"}, {"log": "after"})
    began = time.monotonic()
    for _each in range(20):
        alerts.see_log("gpu1", "0.out", b"a" * 4000 + b"b\nafter\n")
    assert time.monotonic() - began < 5
    assert [message for message, _event in told] == [
        "after: rank 0 on gpu1 printed: after",
        "evil: the expression takes too long and is looked for no more",
    ]
    assert told[1][1]["kind"] is EventKind.FINDING


def test_alerts_are_written_before_the_outcome_and_none_for_what_was_before() -> None:
    directory = jobs.create("x")
    job = Job(name="x", monitoring=Monitoring(alerts=(Alert(state="job failed"), Alert(state="node unknown"))))
    WatchedLog(directory.events).add(EventKind.NODE_STATE, "silent", node="gpu1", data={"state": "unknown"})
    log = WatchedLog(directory.events)
    EventWatch(log, job, directory, directory.path)
    log.add(EventKind.NODE_STATE, "silent still", node="gpu1", data={"state": "unknown"})
    log.add(EventKind.JOB_STATE, "it broke", data={"state": "FAILED"})
    log.add(EventKind.OUTCOME, "it broke", data={"state": "FAILED", "exit_code": 100})
    assert [event.kind.value for event in directory.read_events()] == [
        "node_state", "node_state", "job_state", "alert", "outcome",
    ]  # fmt: skip
    assert json.loads(directory.events.read_text().splitlines()[3])["message"] == "job failed: it broke"


def test_a_listener_that_breaks_does_not_disturb_the_job(caplog: pytest.LogCaptureFixture) -> None:
    log = WatchedLog(jobs.create("x").events)

    def broken(_event: Event) -> None:
        raise ZeroDivisionError

    log.listeners.append(broken)
    assert log.add(EventKind.PROGRESS, "fine").seq == 0
    assert "could not be passed on" in caplog.text


def test_an_alert_that_is_to_restart_the_job_ends_each_attempt_with_what_it_says() -> None:
    alerts, told = watch({"log": "queue is full", "action": "restart"}, {"log": "slow"})
    ended: list[str] = []
    alerts.see_log("gpu1", "0.out", b"queue is full\n")
    for attempt in (0, 1):
        alerts.begin(attempt, ended.append)
        alerts.see_log("gpu1", "0.out", b"slow\nqueue is full\nqueue is full\n")
    alerts.begin(2, None)
    alerts.see_log("gpu1", "0.out", b"queue is full\n")
    assert ended == ["queue is full: rank 0 on gpu1 printed: queue is full"] * 2
    assert [event["attempt"] for _message, event in told] == [None, 0, 0, 1, 2], "slow is told once in five minutes"


def test_no_state_of_the_job_itself_restarts_it() -> None:
    assert Alert(state="node unknown for 2m", action="restart").action == "restart"
    with pytest.raises(ValueError, match="a state of the job itself cannot restart it"):
        Alert(state="job running", action="restart")


async def test_a_state_that_had_to_last_restarts_no_later_attempt() -> None:
    alerts, told = watch({"state": "node lost for 0.05s", "action": "restart"}, {"state": "node lost for 0.05s"})
    ended: list[str] = []
    alerts.begin(0, ended.append)
    alerts.see_event(node_state("gpu1", "lost"))
    alerts.begin(1, ended.append)
    await until(lambda: len(told) == 1, "the alert that is only told")
    assert ended == []
