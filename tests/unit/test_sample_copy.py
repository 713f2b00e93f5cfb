"""Telemetry of a job of weeks: its files stay small, their end is whole, and every reader finds its place in them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from dtagent.protocol.events import Metric
from dtagent.protocol.telemetry import HostSample

from dttui.files import write_atomic
from dttui.services import jobs
from dttui.services.follow import JobFollower
from dttui.services.gang import sample_copy
from dttui.services.gang.log_copy import Cursor
from dttui.services.gang.metric_copy import Place, append_metric, read_metrics
from dttui.services.gang.sample_copy import SampleCopy
from tests.unit.test_follow import plan_for

MOST_BYTES, RECENT_BYTES = 80_000, 20_000


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_copy, "MOST_BYTES", MOST_BYTES)
    monkeypatch.setattr(sample_copy, "RECENT_BYTES", RECENT_BYTES)
    monkeypatch.setattr(sample_copy, "RETRY_BYTES", 2_000)


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
    failed = 0
    for number in range(1_000):
        try:
            copy.append(HostSample(number, 1000.0 + number))
        except OSError:
            failed += 1
    assert numbers(path) == list(range(1_000))
    assert 0 < failed < 40
    (tmp_path / "gpu1.tmp").rmdir()
    for number in range(1_000, 1_030):
        copy.append(HostSample(number, 1000.0 + number))
    assert path.stat().st_size < MOST_BYTES


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
    place, idle = Place(0, "a", "metrics"), Place(0, "b", "metrics")
    append_metric(directory, Metric(1, step=0), idle, Cursor(5, 7))
    for step in range(1_000):
        append_metric(directory, Metric(0, step=step), place, Cursor(10 * step, 8))
    found = read_metrics(directory, 0)
    assert found.cursors == {place: Cursor(9_990, 8), idle: Cursor(5, 7)}
    steps = [metric.step for at, metric in found.metrics if at == place]
    assert steps == list(range(1_000 - len(steps), 1_000))
    assert len(steps) == 128
    assert found.metrics[0][0] == idle
