"""What lies between two points in time is never negative, whatever clocks are set to while a job runs."""

from __future__ import annotations

import ast
import re
import time
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind, JobState
from dtagent.protocol.telemetry import HostSample

from dttui import jobs
from dttui.cli import main
from dttui.engine.alerts.alert_watch import AlertWatch
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.following import JobFollower
from dttui.spec.models import Alert
from dttui.timestamps import SteadyClock, elapsed_s

ROOT = Path(__file__).parents[3]


class Clock:
    """The clocks of this machine, which a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.steady = 1_800_000_000.0, 500.0
        monkeypatch.setattr(time, "time", lambda: self.wall)
        monkeypatch.setattr(time, "monotonic", lambda: self.steady)

    def go_on(self, seconds: float) -> None:
        """Let time pass."""
        self.wall += seconds
        self.steady += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def directory() -> JobDirectory:
    return jobs.create("clocks")


def test_a_duration_is_never_negative_and_a_steady_clock_goes_on_where_the_other_was_set_back(clock: Clock) -> None:
    assert elapsed_s(clock.wall + 60) == 0
    assert elapsed_s(clock.wall + 60, clock.wall) == 0
    assert elapsed_s(clock.wall - 60) == 60
    steady = SteadyClock()
    assert steady.now() == clock.wall
    clock.go_on(10)
    clock.wall -= 3600
    assert steady.now() == 1_800_000_010
    clock.go_on(5)
    assert steady.now() == 1_800_000_015
    clock.wall += 7200
    assert steady.now() == clock.wall
    assert SteadyClock(clock.wall + 100).now() == clock.wall + 100


def test_a_job_whose_clock_is_set_back_took_as_long_as_it_did(
    clock: Clock, directory: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    log = EventLog(directory.events)
    log.add(EventKind.JOB_STATE, "", data={"state": JobState.RUNNING.value})
    clock.go_on(90)
    clock.wall -= 86_400
    later = EventLog(directory.events)  # Of a controller that takes over.
    later.add(EventKind.JOB_STATE, "", data={"state": JobState.RUNNING.value})
    clock.go_on(35)
    later.add(EventKind.JOB_STATE, "", data={"state": JobState.SUCCEEDED.value, "exit_code": 0})
    later.add(EventKind.OUTCOME, "", data={"state": JobState.SUCCEEDED.value, "exit_code": 0})
    (summary,) = jobs.list_jobs()
    assert summary.started_at is not None
    assert summary.ended_at == summary.started_at + 35
    assert main(["ps", "--all"]) == 0
    assert "\t00:00:35\t" in capsys.readouterr().out


@pytest.mark.parametrize("ended", [True, False])
def test_times_that_run_backwards_are_shown_as_no_time(
    clock: Clock, directory: JobDirectory, capsys: pytest.CaptureFixture[str], ended: bool
) -> None:
    rows = [(5000, "job_state", "RUNNING"), (5000, "node_state", "unknown")]
    rows += [(-4000, "job_state", "SUCCEEDED"), (-4000, "outcome", "SUCCEEDED")] if ended else []
    with directory.events.open("w") as stream:
        for seq, (at, kind, state) in enumerate(rows):
            data = f'{{"state": "{state}", "exit_code": 0, "heard_at": {clock.wall + 9000}}}'
            about = f'"seq": {seq}, "time": {clock.wall + at}, "kind": "{kind}", "message": "", "node": "a"'
            stream.write(f'{{{about}, "data": {data}}}\n')
    lock = None if ended else directory.claim()
    follower = JobFollower(directory)
    follower.poll()
    view = follower.view
    assert view.started_at is not None
    assert view.ended_at is None or view.ended_at >= view.started_at
    assert all(seconds >= 0 for seconds in view.silences(clock.wall).values())
    for command in (["ps", "--all"], ["ps", "--all", "--output", "json"], ["diagnose", directory.job_id]):
        main(command)
        said = capsys.readouterr().out
        assert not re.search(r"[\s:]-\d", said), said
        if command == ["ps", "--all"]:
            assert ("\t00:00:00\t" if ended else "\t–\t") in said  # Nobody knows whether it goes on.
    assert ended or lock is not None


def test_alerts_go_on_where_a_clock_is_set_back_an_hour(clock: Clock) -> None:
    told: list[str] = []
    alerts = AlertWatch(
        [Alert(log="x", every="10s"), Alert(metric="host.cpu > 90 for 5s", every="10s")],
        lambda _kind, message, **_fields: told.append(message),
    )
    alerts.see_log("a", "0.out", b"x\n")
    alerts.see_sample("a", HostSample(1, clock.wall, cpu_percent=99.0))
    clock.wall -= 3600
    clock.go_on(11)
    alerts.see_log("a", "0.out", b"x\n")
    assert len(told) == 2
    for second in range(8):
        alerts.see_sample("a", HostSample(2 + second, clock.wall + second, cpu_percent=99.0))
    assert len(told) == 3


def test_no_module_takes_a_wall_time_from_another_by_itself() -> None:
    found = []
    for path in sorted((ROOT / "dttui").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if path.name != "timestamps.py" and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                sides = [ast.unparse(side) for side in (node.left, node.right)]
                if any("time.time()" in side.split("(")[0] + "()" for side in sides):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    # Whatever is of the future counts as nothing in the one; the other runs on hosts, by itself, and tells no duration.
    assert {where.partition(":")[0] for where in found} == {
        "dttui/launch/same_job.py",
        "dttui/fleet/deployment/manage_program.py",
    }
