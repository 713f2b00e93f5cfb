"""What a job's hosts read as curves: one for all of its GPUs, from the first reading on, whoever looks when."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise

import pytest
from dtagent.protocol.events import EventKind, NodeStanding
from dtagent.protocol.metric_fields import PERCENT, metric
from dtagent.protocol.rpc import to_wire
from dtagent.protocol.telemetry import GpuSample, HostSample

from dttui import jobs
from dttui.files import append_line
from dttui.jobs.curves import HISTORY, Axis
from dttui.jobs.event_log import EventLog
from dttui.jobs.following import JobFollower, lines_throughout
from dttui.jobs.host_curves import HostCurves
from dttui.jobs.slot_trends import KEPT
from tests.unit.jobs.test_follow import plan_for


def reading(seconds: float, *loads: int | None, clock: float = 1e9) -> HostSample:
    gpus = [GpuSample(index, load) for index, load in enumerate(loads)]
    return HostSample(int(seconds), clock + seconds, cpu_percent=1.0, gpus=gpus)


def test_a_curve_is_of_all_gpus_of_the_job_and_of_no_others() -> None:
    found = HostCurves()
    for minute in range(3):
        first, second = reading(60 * minute, 90, 60), reading(60 * minute, 5, 30 * minute)
        found.take([("a", first, (0, 1)), ("b", second, (1,))], "x")
    (curve,) = found.curves()
    assert (curve.name, curve.axis, curve.declared.plot) == ("utilization_percent", Axis.MINUTE, "utilisation")
    assert curve.points == ((0, 50), (1, 60), (2, 70))


def test_the_newest_loads_of_each_gpu_of_the_job_are_kept_and_the_same_reading_counts_once() -> None:
    found = HostCurves()
    for second in range(3):
        for _look in range(2):
            found.take([("a", reading(second, 90, None, 10 * second), (2, 1))], "x")
    assert found.trends.of("a", 0) == (0, 10, 20)
    assert found.trends.of("a", 1) == (None, None, None)
    assert found.trends.of("a", 2) == found.trends.of("b", 0) == ()
    for second in range(3, 500):
        found.take([("a", reading(second, 90, None, 100), (2, 1))], "x")
    assert found.trends.of("a", 0) == (100,) * KEPT


def test_what_no_gpu_tells_is_no_point() -> None:
    found = HostCurves()
    found.take([("a", reading(0, None), (0,))], "x")
    found.take([], "x")
    assert found.curves() == ()


@dataclass(frozen=True)
class Fans(GpuSample):
    """A GPU of which two fans are declared to be drawn in one plot."""

    front_percent: int | None = metric(PERCENT, "Speed of the first fan.", plot="fan")
    back_percent: int | None = metric(PERCENT, "Speed of the second fan.", plot="fan")


def test_of_readings_that_share_a_plot_the_one_that_is_declared_first_is_drawn_once_it_is_told() -> None:
    found = HostCurves()
    for minute, front in enumerate((None, 30)):
        sample = HostSample(minute, 60.0 * minute, gpus=[Fans(0, front_percent=front, back_percent=70)])
        found.take([("a", sample, (0,))], "x")
        assert [curve.name for curve in found.curves()] == ["back_percent" if front is None else "front_percent"]


def test_clocks_that_differ_or_are_set_back_leave_the_time_since_the_first_reading() -> None:
    found = HostCurves()
    for second in range(0, 240, 30):
        early = reading(second, 40, clock=1e9 if second < 120 else 0.9e9)
        late = reading(second, 60, clock=1.5e9)
        found.take([("a", early, (0,)), ("b", late, (0,))], "x")
    (curve,) = found.curves()
    assert [position for position, _value in curve.points] == [second / 60 for second in range(0, 240, 30)]


def test_a_curve_of_weeks_stays_short_and_goes_from_its_beginning_to_its_end() -> None:
    found = HostCurves()
    for second in range(3 * HISTORY):
        found.take([("a", reading(second, second % 100), (0,))], "x")
    (curve,) = found.curves()
    places = [position for position, _value in curve.points]
    assert HISTORY // 4 <= len(places) <= HISTORY
    assert (places[0], places[-1]) == (0, (3 * HISTORY - 1) / 60)
    assert all(earlier < later for earlier, later in pairwise(places))


@pytest.mark.parametrize("is_over", [False, True])
def test_who_looks_late_sees_what_hosts_have_done_before_and_goes_on_from_there(is_over: bool) -> None:
    directory = jobs.create("late")
    directory.plan.write_text(plan_for("a", "b").model_dump_json())
    log = EventLog(directory.events)
    state = NodeStanding.ENDED if is_over else NodeStanding.RUNNING
    for name in ("a", "b"):
        log.add(EventKind.NODE_STATE, "", attempt=0, node=name, data={"state": state.value, "gpu_ids": [0]})
        for second in range(0, 6_000, 2):
            append_line(directory.samples(name), json.dumps(to_wire(reading(second, 10 + second // 100))))
    follower = JobFollower(directory)
    follower.poll()
    (curve,) = follower.view.curves()
    assert curve.points[0] == (0, 10)
    assert curve.points[-1][0] > 99
    assert 100 < len(curve.points) <= 201
    assert all(earlier < later and after - before < 2 for (earlier, before), (later, after) in pairwise(curve.points))
    append_line(directory.samples("a"), json.dumps(to_wire(reading(6_060, 99))))
    follower.poll()
    (grown,) = follower.view.curves()
    assert len(grown.points) - len(curve.points) == (0 if is_over else 1)


def test_lines_from_all_over_a_file_are_whole_and_each_comes_once() -> None:
    path = jobs.create("lines").path / "lines"
    assert lines_throughout(path, 5) == []
    lines = [b"%d %s\n" % (number, b"x" * (number * 37 % 1_000)) for number in range(500)]
    path.write_bytes(b"".join(lines) + b"torn")
    found = lines_throughout(path, 40)
    numbers = [lines.index(line) for line in found]
    assert numbers == sorted(set(numbers))
    assert 30 < len(numbers) <= 40
    assert numbers[0] == 0
    assert lines_throughout(path, path.stat().st_size) == lines
    path.write_bytes(lines[3])
    assert lines_throughout(path, 40) == [lines[3]]
