"""What jobs have taken: kept one after the other, read whole or not at all, and dropped by kind."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from dttui import locations
from dttui.errors import UsageError
from dttui.fleet import measured_runs as kept
from dttui.fleet.known_hardware import known_hardware, learned_from_jobs
from dttui.fleet.measured_runs import drop_runs, measured_runs, record_run
from dttui.planning.cost.calibration import CostBasis, MeasuredRun
from dttui.planning.cost.hardware import Hardware, default_links, gpu_table
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.shape import usual_shape


def run_of(number: int, kind: str = "A100-80GB", step_time_s: float = 2.0, job: str | None = None) -> MeasuredRun:
    gpu = gpu_table().find(kind)
    assert gpu is not None
    basis = CostBasis.of(usual_shape(1e9), Layout(global_batch=8), Hardware(gpu, 1, 1, *default_links(gpu)))
    name = job or f"job-{number}"
    return MeasuredRun(job=name, ended_at=float(number), basis=basis, step_time_s=step_time_s, memory_bytes=2e10)


def keep_some(home: Path, first: int) -> None:
    """Keep ten, in a process of its own."""
    for number in range(first, first + 10):
        record_run(run_of(number))


def test_runs_are_kept_the_oldest_first_and_for_their_owner_alone() -> None:
    assert measured_runs() == ()
    record_run(run_of(2))
    record_run(run_of(1))
    assert measured_runs() == (run_of(1), run_of(2))
    assert locations.measured_runs_file().stat().st_mode & 0o777 == 0o600


def test_a_job_that_ends_again_takes_the_place_of_what_was_kept_of_it() -> None:
    record_run(run_of(1, job="same"))
    record_run(run_of(3, job="same", step_time_s=5.0))
    assert [run.step_time_s for run in measured_runs()] == [5.0]


def test_of_a_kind_and_precision_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "KEPT_RUNS", 3)
    record_run(run_of(0, "H100"))
    for number in range(1, 6):
        record_run(run_of(number))
    assert [run.job for run in measured_runs()] == ["job-0", "job-3", "job-4", "job-5"]


def test_estimates_learn_from_what_is_kept_as_soon_as_it_is() -> None:
    assert learned_from_jobs() == {}
    for number in range(3):
        record_run(run_of(number, step_time_s=50.0))
    first = known_hardware().learned["A100-80GB"].time["bf16"]
    assert first.compute > 2
    assert learned_from_jobs() is learned_from_jobs()
    record_run(run_of(4, "H100"))
    assert known_hardware().learned.keys() == {"A100-80GB", "H100-80GB"}


def test_what_is_dropped_is_of_one_kind_or_of_all() -> None:
    for number, kind in enumerate(("A100-80GB", "H100-80GB", "A100-80GB")):
        record_run(run_of(number, kind))
    assert [run.job for run in drop_runs("A100-80GB")] == ["job-0", "job-2"]
    assert [run.job for run in measured_runs()] == ["job-1"]
    assert [run.job for run in drop_runs()] == ["job-1"]
    assert measured_runs() == drop_runs() == ()
    assert known_hardware().learned == {}


def test_writers_in_several_processes_lose_nothing_of_each_other() -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=keep_some, args=(Path(), first)) for first in (0, 10, 20)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert [run.job for run in measured_runs()] == [f"job-{number}" for number in range(30)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Invalid JSON"),
        ('{"version": 1, "runs": [', "Invalid JSON"),
        ('{"version": 2}', "version"),
        ('{"version": 1, "runs": [{"job": "a"}]}', "runs.0.ended_at"),
    ],
)
def test_a_damaged_file_is_told_of_and_stays_as_it_is(text: str, reason: str) -> None:
    path = locations.measured_runs_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    for act in (measured_runs, lambda: record_run(run_of(1)), drop_runs, known_hardware):
        with pytest.raises(UsageError) as caught:
            act()
        assert str(path) in caught.value.message
        assert reason in caught.value.message
        assert "move it away" in caught.value.hint
    assert path.read_text() == text
    known = known_hardware(lenient=True)
    assert known.learned == {}
    (finding,) = known.findings
    assert (finding.code, finding.severity.value) == ("runs-file", "warning")


def test_an_absurd_number_is_refused_with_its_place() -> None:
    record_run(run_of(1))
    path = locations.measured_runs_file()
    body = json.loads(path.read_text())
    body["runs"][0]["step_time_s"] = -1
    path.write_text(json.dumps(body))
    with pytest.raises(UsageError, match=r"runs\.0\.step_time_s"):
        measured_runs()


def test_keys_that_another_version_wrote_are_read_without_them() -> None:
    record_run(run_of(1))
    path = locations.measured_runs_file()
    body = json.loads(path.read_text())
    (one,) = body["runs"]
    one["basis"]["layout"]["dropped"] = one["basis"]["dropped"] = one["dropped"] = 1
    path.write_text(json.dumps({**body, "dropped": 1}))
    assert measured_runs() == (run_of(1),)
