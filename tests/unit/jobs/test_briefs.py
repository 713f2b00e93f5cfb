"""Of jobs that run and of one that has failed a few figures are told, without reading again what is over."""

from __future__ import annotations

import time

import pytest
from dtagent.protocol.events import JobState, Metric

from dttui.jobs import JobBriefs, JobDirectory, JobSummary, briefs, summarize
from dttui.jobs.following import JobFollower
from tests.tui import job_files
from tests.tui.fake_fleet import job, make_inventory
from tests.tui.screens import CHOSEN


def new() -> JobBriefs:
    return JobBriefs(JobFollower)


def test_what_is_over_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inventory, read = make_inventory(), list[str]()
    over = job_files.failed(job(*CHOSEN, name="over"), inventory)

    def counted(directory: JobDirectory) -> JobSummary:
        read.append(directory.job_id)
        return summarize(directory)

    monkeypatch.setattr(briefs, "summarize", counted)
    looks = new()
    first = looks.look()
    assert [(brief.name, brief.state) for brief in first] == [("over", JobState.FAILED)]
    assert looks.look() == first
    assert read == [over.job_id]


def test_of_what_runs_only_what_is_new_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = job_files.running(job(*CHOSEN, name="on"), make_inventory(), 20.0)
    writer.watch()
    looks = new()
    (first,) = looks.look()
    assert (first.state, first.progress is not None and first.progress.share) == (JobState.RUNNING, 0.25)
    writer.report(Metric(0, 400, 2.0, total_steps=800.0, time=time.time()))
    writer.state(JobState.STOPPING, "asked to")
    with monkeypatch.context() as patch:
        patch.setattr(briefs, "summarize", lambda _directory: pytest.fail("it is read from its beginning"))
        (second,) = looks.look()
    assert (second.state, second.reason, second.loss) == (JobState.STOPPING, "asked to", 2.0)
    assert second.progress is not None
    assert second.progress.share == 0.5
    writer.state(JobState.FAILED, "broke")
    (third,) = looks.look()
    assert (third.state, third.reason) == (JobState.FAILED, "broke")


def test_nothing_is_told_of_what_was_seen_or_is_long_ago_or_was_followed_by_what_went_well() -> None:
    inventory = make_inventory()
    bad = job_files.failed(job(*CHOSEN, name="bad"), inventory)
    looks = new()
    assert [brief.name for brief in looks.look()] == ["bad"]
    assert not looks.look(time.time() + briefs.NEWS_S + 1)
    bad.directory.see()
    assert not looks.look()
    job_files.failed(job(*CHOSEN, name="worse"), inventory)
    assert [brief.name for brief in looks.look()] == ["worse"]
    job_files.succeeded(job(*CHOSEN, name="good"), inventory)
    assert not looks.look()


def test_of_which_nobody_knows_anything_is_told_for_a_day() -> None:
    job_files.running(job(*CHOSEN, name="left alone"), make_inventory())
    looks = new()
    assert [(brief.name, brief.state) for brief in looks.look()] == [("left alone", JobState.UNKNOWN)]
    assert not looks.look(time.time() + briefs.NEWS_S + 1)
