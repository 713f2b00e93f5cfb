"""All jobs in one list: what is over is read once, what is new then, and one that cannot be read hides no other."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest
from dtagent.protocol.events import JobState, Metric

from dttui import jobs
from dttui.jobs import JobDirectory, JobEntry, JobSummary, catalogue
from dttui.jobs.catalogue import JobCatalogue, LeastLoss
from dttui.jobs.listing import newest_called, runs_before, summarize_any
from tests.tui import job_files
from tests.tui.fake_fleet import job, make_inventory
from tests.tui.screens import CHOSEN


def looked(found: JobCatalogue) -> dict[str, JobEntry]:
    """What is known once all was read, by name."""
    *_before, last = found.looks()
    return {entry.summary.name: entry for entry in last}


def test_of_each_job_the_best_loss_the_nodes_and_what_a_rank_said_are_known() -> None:
    inventory = make_inventory()
    job_files.succeeded(job(*CHOSEN, name="well"), inventory)
    job_files.failed(job(*CHOSEN, name="ill"), inventory)
    found = looked(JobCatalogue())
    assert found["well"].nodes == CHOSEN
    assert found["well"].last_step == 200
    assert found["well"].best_loss == pytest.approx(2.195, abs=0.01)
    assert found["well"].best_step is not None
    assert found["well"].error == ""
    assert found["ill"].error == "ValueError: batch 118 has no samples"


def test_what_is_over_is_read_once_and_what_runs_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    inventory, read = make_inventory(), list[str]()
    over = job_files.failed(job(*CHOSEN, name="over"), inventory)
    running = job_files.running(job(*CHOSEN, name="on"), inventory)
    running.watch()

    def counted(directory: JobDirectory) -> JobSummary:
        read.append(directory.job_id)
        return summarize_any(directory)

    monkeypatch.setattr(catalogue, "summarize_any", counted)
    looks = JobCatalogue()
    first = looked(looks)
    running.report(Metric(0, 400, 0.5))
    running.state(JobState.STOPPING)
    second = looked(looks)
    assert sorted(read) == sorted([over.job_id, running.job_id, running.job_id])
    assert second["over"] is first["over"]
    assert second["on"].summary.state is JobState.STOPPING
    assert (second["on"].best_loss, second["on"].best_step, second["on"].last_step) == (0.5, 400, 400)


def test_what_was_broken_off_is_read_by_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    over = job_files.succeeded(job(*CHOSEN, name="over"), make_inventory())
    looks = JobCatalogue()
    looking = cast("Generator[list[JobEntry]]", looks.looks())
    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "PACE_S", 0.0)
        patched.setattr(catalogue, "FIRST_S", 0.0)
        patched.setattr(LeastLoss, "read", lambda self: True)  # Of a file that never ends.
        for _part in range(6):
            next(looking)
        looking.close()
    assert looked(looks)["over"].last_step == 200, over.job_id


def test_a_job_whose_files_cannot_be_read_is_no_earlier_run_and_hides_none() -> None:
    inventory = make_inventory()
    first, second = (job_files.succeeded(job(*CHOSEN, name="again"), inventory) for _run in range(2))
    broken = jobs.create("again")
    broken.events.mkdir()
    assert [other.job_id for other in runs_before(second.directory)] == [first.job_id]
    assert newest_called("again") == second.directory
    assert list(runs_before(broken)) == []


def test_a_directory_that_cannot_be_read_is_told_and_hides_no_other() -> None:
    job_files.succeeded(job(*CHOSEN, name="well"), make_inventory())
    broken = jobs.create("broken")
    broken.events.mkdir()
    found = looked(JobCatalogue())
    assert found["well"].summary.state is JobState.SUCCEEDED
    assert found[broken.job_id].summary.state is JobState.UNKNOWN
    assert found[broken.job_id].summary.reason == f"cannot be read: Is a directory ({broken.events})"
    assert {summary.name for summary in jobs.list_jobs()} == {"well", broken.job_id}


def test_a_job_that_was_removed_is_listed_no_more() -> None:
    looks = JobCatalogue()
    assert list(looks.looks())[-1] == []
    over = job_files.succeeded(job(*CHOSEN, name="well"), make_inventory())
    assert set(looked(looks)) == {"well"}
    over.directory.path.rename(over.directory.path.with_name(".removed-x"))
    assert looked(looks) == {}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], (None, None, None)),
        (['{"rank": 0, "step": 1, "loss": 3.0}', '{"rank": 0, "step": 2, "loss": 1e-3}'], (0.001, 2, 2)),
        (['{"rank":0,"step":5,"loss":-2}', '{"rank":0,"step":9,"eval_loss":-9}'], (-2.0, 5, 9)),
        (['{"rank": 3, "step": 9, "loss": 0.1}', '{"rank": 1, "step": 4, "loss": 0.7}'], (0.7, 4, 4)),
        (['{"rank": 0, "step": 7, "not_finite": ["loss"]}', "torn {", '{"rank": 0, "loss": 4.0}'], (4.0, None, 7)),
    ],
)
def test_the_least_loss_is_that_of_the_lowest_rank(
    lines: list[str], expected: tuple[float | None, int | None, int | None], tmp_path: Path
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    found = LeastLoss(path)
    while found.read():
        pass
    assert (found.loss, found.step, found.last_step) == expected
