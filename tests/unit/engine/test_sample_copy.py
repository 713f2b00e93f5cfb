"""Telemetry of a job of weeks: its files stay small, their end is whole, and every reader finds its place in them."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from dtagent.protocol.events import Metric
from dtagent.protocol.telemetry import HostSample

from dttui import jobs
from dttui.engine.copies import metric_copy, sample_copy
from dttui.engine.copies.log_copy import Cursor
from dttui.engine.copies.metric_copy import ReportPlace, append_metric, read_metrics
from dttui.engine.copies.sample_copy import SampleCopy
from dttui.files import thin_out, write_atomic
from dttui.jobs.curves import curves
from dttui.jobs.following import JobFollower
from tests.unit.jobs.test_follow import plan_for

MOST_BYTES, RECENT_BYTES = 80_000, 20_000


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_copy, "MOST_BYTES", MOST_BYTES)
    monkeypatch.setattr(sample_copy, "RECENT_BYTES", RECENT_BYTES)
    monkeypatch.setattr(sample_copy, "RETRY_BYTES", 2_000)
    monkeypatch.setattr(sample_copy, "thin_out", thin_out_at_once)


def thin_out_at_once(path: Path, recent_bytes: int, thin: Callable[[bytes], bytes]) -> None:
    thread = thin_out(path, recent_bytes, thin)
    assert thread is not None
    thread.join(20)


def numbers(path: Path) -> list[int]:
    return [json.loads(line)["seq"] for line in path.read_text().splitlines()]


@pytest.mark.usefixtures("small")
def test_a_file_of_samples_stays_within_its_bound_and_its_end_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "gpu1.jsonl"
    copy = SampleCopy(path)
    largest = 0
    for number in range(5_000):
        copy.append(HostSample(number, 1000.0 + number))
        largest = max(largest, path.stat().st_size)
    assert largest < MOST_BYTES + 1_000
    kept = numbers(path)
    assert kept == sorted(set(kept))
    recent = RECENT_BYTES // 500
    assert kept[-recent:] == list(range(5_000 - recent, 5_000))
    assert kept[0] == 0
    gaps = [after - before for before, after in itertools.pairwise(kept)]
    assert max(gaps[: len(gaps) // 4]) > max(gaps[-len(gaps) // 4 :])
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.usefixtures("small")
def test_who_follows_a_job_sees_the_newest_sample_before_and_after_a_file_was_thinned() -> None:
    directory = jobs.create("long")
    write_atomic(directory.plan, plan_for("a").model_dump_json())
    follower = JobFollower(directory)
    copy = SampleCopy(directory.samples("a"))
    for number in range(1_000):
        copy.append(HostSample(number, 1000.0 + number))
        if number % 50 == 0:
            follower.poll()
            sample = follower.view.nodes["a"].sample
            assert sample is not None
            assert sample.seq == number
    assert len(numbers(directory.samples("a"))) < 1_000
    late = JobFollower(directory)
    late.poll()
    sample = late.view.nodes["a"].sample
    assert sample is not None
    assert sample.seq == 999


@pytest.mark.usefixtures("small")
def test_where_no_room_is_for_thinning_samples_are_kept_and_it_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "gpu1.jsonl"
    copy = SampleCopy(path)
    (tmp_path / "gpu1.tmp").mkdir()  # Nothing can be written under that name.
    for number in range(1_000):
        copy.append(HostSample(number, 1000.0 + number))
    assert numbers(path) == list(range(1_000))
    (tmp_path / "gpu1.tmp").rmdir()
    for number in range(1_000, 1_030):
        copy.append(HostSample(number, 1000.0 + number))
    assert path.stat().st_size < MOST_BYTES


def test_what_comes_while_a_file_is_thinned_waits_for_nothing_and_stays(
    tmp_path: Path,
) -> None:
    path, has_read, goes_on = tmp_path / "gpu1.jsonl", threading.Event(), threading.Event()
    copy = SampleCopy(path)
    copy.append(HostSample(0, 1000.0))
    copy.append(HostSample(1, 1000.0))

    def thin(lines: bytes) -> bytes:
        has_read.set()
        assert goes_on.wait(20)
        return lines.splitlines(keepends=True)[0]

    thread = thin_out(path, 1, thin)
    assert thread is not None
    assert thin_out(path, 1, thin) is None, "one at a time"
    assert has_read.wait(20)
    for number in range(2, 22):
        copy.append(HostSample(number, 1000.0))
    goes_on.set()
    thread.join(20)
    copy.append(HostSample(22, 1000.0))
    assert numbers(path) == [0, *range(2, 23)]


def test_a_later_controller_goes_on_behind_the_newest_whole_sample(tmp_path: Path) -> None:
    path = tmp_path / "gpu1.jsonl"
    copy = SampleCopy(path)
    assert copy.resume() is None
    copy.append(HostSample(1, 1000.0))
    copy.append(HostSample(7, 1001.0, network_receive_bytes_per_s={f"eth{n}": 0.5 for n in range(5_000)}))
    with path.open("ab") as stream:
        stream.write(b'{"seq": 99, "ti')
    assert SampleCopy(path).resume() == 7
    assert numbers(path) == [1, 7]
    path.write_text("[]\n")
    assert SampleCopy(path).resume() is None


def test_of_metrics_a_later_controller_holds_every_cursor_and_so_many_reports_of_a_rank() -> None:
    directory = jobs.create("long")
    place, idle = ReportPlace(0, "a", "metrics"), ReportPlace(0, "b", "metrics")
    append_metric(directory, Metric(1, step=0), idle, Cursor(5, 7))
    for step in range(1_000):
        append_metric(directory, Metric(0, step=step), place, Cursor(10 * step, 8))
    found = read_metrics(directory, 0)
    assert found.cursors == {place: Cursor(9_990, 8), idle: Cursor(5, 7)}
    steps = [metric.step for at, metric in found.metrics if at == place]
    assert steps == list(range(1_000 - len(steps), 1_000))
    assert len(steps) == 128
    assert found.metrics[0][0] == idle


@pytest.fixture
def few_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_copy, "MOST_BYTES", 200_000)
    monkeypatch.setattr(metric_copy, "RECENT_BYTES", 50_000)
    monkeypatch.setattr(metric_copy, "RETRY_BYTES", 10_000)
    monkeypatch.setattr(metric_copy, "thin_out", thin_out_at_once)


@pytest.mark.usefixtures("few_reports")
def test_reports_stay_within_their_bound_and_curves_go_from_the_first_step_to_the_last() -> None:
    directory = jobs.create("long")
    quiet, noisy = ReportPlace(0, "b", "metrics"), ReportPlace(0, "a", "metrics")
    append_metric(directory, Metric(1, step=0, loss=9.0), quiet, Cursor(5, 7))
    largest = 0
    for step in range(6_000):
        append_metric(directory, Metric(0, step=step, loss=1 / (1 + step), time=1e9 + step), noisy, Cursor(step, 8))
        largest = max(largest, directory.metrics.stat().st_size)
    assert largest < 200_000 + 10_500
    found = read_metrics(directory, 0)
    assert found.cursors == {noisy: Cursor(5_999, 8), quiet: Cursor(5, 7)}
    follower = JobFollower(directory)
    while follower.poll():
        pass
    (curve,) = curves(follower.view.metrics)
    loss = curve.points
    assert loss[0] == (0.0, 1.0)
    assert loss[-1] == (5_999.0, 1 / 6_000)
    assert all(value == 1 / (1 + step) for step, value in loss)
    gaps = [after[0] - before[0] for before, after in itertools.pairwise(loss)]
    assert min(gaps) == 1
    assert max(gaps) <= 32  # However often they were thinned, nowhere is a hole.
    assert len(loss) > 500
    assert directory.metrics.stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("few_reports")
def test_who_follows_reports_sees_each_once_while_older_ones_are_thinned() -> None:
    directory = jobs.create("long")
    write_atomic(directory.plan, plan_for("a").model_dump_json())
    follower, steps = JobFollower(directory), []
    for step in range(3_000):
        append_metric(directory, Metric(step % 2, step=step), ReportPlace(0, "a", "metrics"), Cursor(step, 8))
        if step % 20 == 0:
            steps += [event.data["step"] for event in follower.poll()]
    steps += [event.data["step"] for event in follower.poll()]
    assert steps == list(range(3_000))
    assert directory.metrics.stat().st_size < 210_500


@pytest.mark.usefixtures("few_reports")
def test_where_no_room_is_for_thinning_reports_all_are_kept() -> None:
    directory = jobs.create("long")
    directory.metrics.with_suffix(".tmp").mkdir()
    for step in range(2_500):
        append_metric(directory, Metric(0, step=step, loss=0.5), ReportPlace(0, "a", "metrics"), Cursor(step, 8))
    assert len(directory.metrics.read_text().splitlines()) == 2_500
