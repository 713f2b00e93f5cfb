"""What has happened in a job in the order of time, whatever clocks its files are by, and the clock of a replay."""

from __future__ import annotations

import json
import math
import os
import tracemalloc
from typing import Any

import pytest
from dtagent.protocol.events import Event, EventKind, JobState, Metric
from dtagent.protocol.rpc import to_wire

from dttui import jobs
from dttui.errors import ExitCode
from dttui.jobs import JobDirectory, LogLines, Past, PastFollower, PastReading, PastReport, ReplayClock, chosen
from dttui.jobs.event_log import EventLog
from dttui.jobs.replay import PastLogs
from dttui.redaction import NO_VALUES
from tests.integration.headless import dttui_here
from tests.unit.jobs.test_follow import plan_for

BEGIN = 1_700_000_000.0


class Writer:
    """A job of two nodes that ran for 100 s."""

    def __init__(self) -> None:
        self.directory: JobDirectory = jobs.create("x")
        self.directory.plan.write_text(plan_for("a", "b").model_dump_json())
        self._log = EventLog(self.directory.events)

    def event(self, at: float, kind: EventKind, **fields: Any) -> None:
        self._log.add(kind, fields.pop("message", ""), time=BEGIN + at, **{"attempt": 0, **fields})

    def state(self, at: float, state: str, **fields: Any) -> None:
        self.event(at, EventKind.JOB_STATE, data={"state": state}, **fields)

    def reading(self, node: str, at: float, seq: int) -> None:
        with self.directory.samples(node).open("a") as stream:
            stream.write(json.dumps({"seq": seq, "time": BEGIN + at, "cpu_percent": float(seq), "gpus": []}) + "\n")

    def report(self, at: float, step: int, source: list[Any] | None = None) -> None:
        body = to_wire(Metric(0, step, loss=1.0, time=BEGIN + at))
        with self.directory.metrics.open("a") as stream:
            stream.write(json.dumps({**body, **({"source": source} if source else {})}) + "\n")

    def log(self, node: str, text: str, *, attempt: int = 0, ended: float = 100.0) -> None:
        path = self.directory.logs(attempt, node) / "0.out"
        path.parent.mkdir(parents=True)
        path.write_text(text)
        os.utime(path, (BEGIN + ended, BEGIN + ended))


@pytest.fixture
def job() -> Writer:
    writer = Writer()
    writer.state(0, "PREFLIGHT")
    writer.event(1, EventKind.NODE_STATE, node="b", data={"state": "connected", "clock_offset_s": 3600.0})
    writer.state(20, "RUNNING")
    writer.event(60, EventKind.RANK_FAILED, node="b", rank=1, data={"exit_code": 3})
    writer.state(100, "FAILED")
    writer.event(100, EventKind.OUTCOME, data={"state": "FAILED", "exit_code": 100})
    return writer


def told(past: Past) -> list[tuple[float, object]]:
    return [(round(moment.time - BEGIN, 3), moment.what) for moment in past.until(math.inf)]


def test_all_is_told_in_the_time_of_the_login_node_and_the_outcome_last(job: Writer) -> None:
    for at in (5, 30, 130):
        job.reading("a", at, at)
    job.reading("b", 3600 + 40, 40)
    job.report(3600 + 50, 5, [0, "b", "metrics", 1, 1])
    job.report(70, 6, [0, "a", "metrics", 1, 1])
    job.report(55, 7, [0, "a", "metrics", 1, 1])
    found = told(Past(job.directory))
    assert [at for at, what in found if isinstance(what, PastReading) and what.node == "a"] == [5, 30, 100]
    assert [at for at, what in found if isinstance(what, PastReading) and what.node == "b"] == [40]
    reports = [(at, what.metric.step) for at, what in found if isinstance(what, PastReport)]
    assert reports == [(50, 5), (70, 6), (70, 7)]
    assert isinstance(found[-1][1], Event)
    assert found[-1][1].kind is EventKind.OUTCOME
    assert [at for at, _what in found] == sorted(at for at, _what in found)


def test_a_line_without_a_time_lies_between_others_as_its_bytes_do(job: Writer) -> None:
    stamped = "2023-11-14T22:14:10Z now\n"  # 50 s after the beginning.
    job.log("a", "x" * 24 + "\n" + stamped + ("y" * 24 + "\n") * 2, ended=90)
    lines = [(at, what.lines) for at, what in told(Past(job.directory, chosen((0,)))) if isinstance(what, LogLines)]
    assert [at for at, _lines in lines] == [37.5, 50, 70, 90]
    assert lines[1][1] == [stamped.strip().encode()]
    assert not [what for _at, what in told(Past(job.directory)) if isinstance(what, LogLines)]
    assert not [what for _at, what in told(Past(job.directory, chosen((7,)))) if isinstance(what, LogLines)]


def test_a_view_shows_at_each_moment_what_was_known_then(job: Writer) -> None:
    now = 0.0
    clock = ReplayClock(BEGIN, BEGIN + 100, 10.0, lambda: now)
    for at in (30, 40, 95):
        job.reading("a", at, at)
    job.report(50, 5)
    past = PastFollower(job.directory, clock)
    assert [(event.kind.value, past.view.state) for event in past.poll()] == [("job_state", JobState.PREFLIGHT)]
    for moment, state, failures, step in ((2.5, "RUNNING", 0, None), (5.5, "RUNNING", 0, 5), (6.0, "RUNNING", 1, 5)):
        now = moment
        past.poll()
        assert (past.view.state.value, len(past.view.failures)) == (state, failures)
        assert (past.view.newest_metric.step if past.view.newest_metric else None) == step
    assert past.view.nodes["a"].sample is not None
    assert past.view.nodes["a"].sample.seq == 40
    assert not past.has_told_all
    now = 100.0
    past.catch_up()
    assert (past.has_told_all, past.is_over, past.view.state) == (True, True, JobState.FAILED)


def test_a_clock_stands_still_goes_faster_and_leaps_and_never_leaves_the_job() -> None:
    now = 0.0
    clock = ReplayClock(BEGIN, BEGIN + 100, 2.0, lambda: now)
    now = 5.0
    assert clock.now() == BEGIN + 10
    clock.pause(is_paused=True)
    now = 50.0
    assert clock.now() == BEGIN + 10
    clock.set_speed(4.0)
    clock.pause(is_paused=False)
    now = 55.0
    assert clock.now() == BEGIN + 30
    assert clock.wait_s(BEGIN + 50) == 5.0
    clock.seek(BEGIN - 50)
    assert clock.now() == BEGIN
    clock.seek(BEGIN + 500)
    assert clock.now() == BEGIN + 100
    clock.seek(BEGIN)
    clock.set_speed(math.inf)
    assert (clock.now(), clock.wait_s(BEGIN + 50)) == (BEGIN + 100, 0.0)


def test_another_attempt_is_shown_with_the_nodes_that_it_had(job: Writer) -> None:
    directory = job.directory
    for attempt, names in ((0, ("a", "c")), (1, ("a", "b"))):
        directory.bound_plan(attempt).parent.mkdir(parents=True)
        directory.bound_plan(attempt).write_text(json.dumps({"plan": json.loads(plan_for(*names).model_dump_json())}))
    job.state(150, "RUNNING", attempt=1)
    now = 0.0
    past = PastFollower(directory, ReplayClock(BEGIN, BEGIN + 200, 1.0, lambda: now))
    past.poll()
    assert list(past.view.nodes) == ["a", "c"]
    now = 160.0
    past.catch_up()
    assert (list(past.view.nodes), past.view.attempt) == (["a", "b"], 1)


@pytest.mark.parametrize("name", ["events.jsonl", "plan.json", "telemetry/metrics.jsonl", "telemetry/a.jsonl"])
@pytest.mark.parametrize(
    "text", [b"", b"\x00" * 4096, b'{"seq": 1, "time": 1e999, "kind": "job_state"\n{"time": []}\n', None]
)
def test_of_a_directory_that_is_torn_what_is_whole_is_told(job: Writer, name: str, text: bytes | None) -> None:
    job.log("a", "hello\n")
    for at in (5, 30):
        job.reading("a", at, at)
        job.report(at, at)
    path = job.directory.path / name
    if text is None:
        path.unlink()
    else:
        path.write_bytes(text + path.read_bytes()[:-20])
    for form in ("human", "jsonl"):
        done = dttui_here("replay", job.directory.job_id, "--speed", "max", "--output", form)
        assert (done.returncode, "internal" in done.stderr) == (ExitCode.OK, False), done.stderr
    past = PastFollower(job.directory)
    past.catch_up()
    assert past.has_told_all


def test_of_a_job_of_which_nothing_has_happened_nothing_is_told_and_one_that_runs_is_said_to() -> None:
    directory = jobs.create("x")
    done = dttui_here("replay", directory.job_id, "--output", "human")
    assert (done.returncode, done.stdout) == (ExitCode.OK, "")
    assert "is not over: this is how far it had come" in done.stderr
    past = PastFollower(directory)
    assert (past.catch_up(), past.has_told_all) == ([], True)


@pytest.mark.parametrize("wrong", ["0", "-1", "nan", "inf", "fast", "1e99"])
def test_what_is_no_speed_is_refused(wrong: str) -> None:
    done = dttui_here("replay", "--speed", wrong)
    assert (done.returncode, "is no speed" in done.stderr) == (ExitCode.USAGE, True)


def test_of_a_job_that_runs_on_after_its_last_event_readings_and_reports_are_told_when_they_came() -> None:
    job = Writer()
    job.state(0, "RUNNING")
    for at in (10, 500, 900):
        job.reading("a", at, at)
        job.report(at + 5, at)
    os.utime(job.directory.metrics, (BEGIN + 905, BEGIN + 905))
    os.utime(job.directory.samples("a"), (BEGIN + 900, BEGIN + 900))
    past = Past(job.directory)
    assert past.end == BEGIN + 905
    assert [at for at, _what in told(past)] == [0, 10, 15, 500, 505, 900, 905]


ODD: tuple[dict[str, Any], ...] = (
    {"kind": "finding"},
    {"kind": "finding", "data": {"code": 3, "severity": [1], "file": "x"}},
    {"kind": "metric_alert"},
    {"kind": "job_state", "data": {"state": {}}},
    {"kind": "preflight", "node": "a", "data": {"cells": 4, "versions": [1]}},
    {"kind": "node_state", "node": "a", "data": {"state": [], "gpu_ids": 3, "clock_offset_s": "x"}},
    {"kind": "ranks", "node": "a", "data": {"ranks": 5}},
    {"kind": "progress", "data": {"missing": {"a": 7}, "absent_ranks": 3}},
    {"kind": "rank_failed", "data": {"time": "x", "tail": 5}},
    {"kind": "job_state", "data": {"state": "FAILED", "attempt_outcome": 5, "first_failure": 7}},
    {"kind": "outcome", "data": {"state": "FAILED", "exit_code": []}},
    {"kind": "of-tomorrow", "data": {}},
)
"""What is an event, and not as its kind has it."""


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(odd)[:60])
def test_an_event_that_is_not_as_its_kind_has_it_says_nothing_and_ends_no_verb(
    job: Writer, odd: dict[str, Any]
) -> None:
    path = job.directory.events
    lines = path.read_text().splitlines(keepends=True)
    lines.insert(2, json.dumps({"seq": 9, "time": BEGIN + 2, "message": "odd", **odd}) + "\n")
    path.write_text("".join(lines))
    name = job.directory.job_id
    for verb in (
        ["replay", name, "--speed", "max", "--output", "human"],
        ["replay", name, "--speed", "max", "--output", "jsonl"],
        ["events", name],
        ["compare", name, name],
        ["history"],
    ):
        done = dttui_here(*verb)
        assert (done.returncode, "internal" in done.stderr) == (ExitCode.OK, False), (verb, done.stderr)
    past = PastFollower(job.directory)
    past.catch_up()
    assert (past.view.state, past.view.exit_code) == (JobState.FAILED, 100)


def test_files_of_twenty_megabytes_are_told_in_little_memory(job: Writer) -> None:
    line = json.dumps({"rank": 0, "step": 1, "loss": 1.0, "time": BEGIN + 50, "extra": {"x" * 900: 1.0}}) + "\n"
    with job.directory.metrics.open("w") as stream:
        for _block in range(4):
            stream.write(line * 1000)
    job.log("a", ("z" * 999 + "\n") * 16_000)
    tracemalloc.start()
    try:
        count = sum(1 for _moment in Past(job.directory, chosen("all")).until(math.inf))
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 4_000 + 16_000 + 6
    assert peak < 8 << 20


def test_logs_are_shown_as_far_as_they_had_come(job: Writer) -> None:
    now = 0.0
    clock = ReplayClock(BEGIN, BEGIN + 100, 1.0, lambda: now)
    job.log("a", "".join(f"line {number:02}\n" for number in range(80)))
    logs = PastLogs(job.directory, 0, "a", clock, lambda _process, _stream: True, NO_VALUES)
    assert logs.poll(["a"]) == []
    now = 60.5
    (part,) = logs.poll(["a"])
    assert part.lines == [b"line %02d" % number for number in range(40)]
    now = 200.0
    assert sum(len(part.lines) for part in logs.poll(["a"])) == 40
    assert logs.poll(["a"]) == []
