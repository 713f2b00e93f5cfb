"""Removing jobs from the login node: only those that are over, only what is here, and never unasked."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.events import Event, EventKind, JobState

from dttui import jobs, locations
from dttui.cli import main
from dttui.errors import UsageError
from dttui.jobs import JobDirectory, event_log, removal
from dttui.jobs.event_log import EventLog
from dttui.launch.starting import ensure_controller

DAY_S = 86_400.0


def finish(
    name: str, ended_at: float, monkeypatch: pytest.MonkeyPatch, state: JobState = JobState.SUCCEEDED
) -> JobDirectory:
    """Write a job that ended at a Unix time."""
    directory = jobs.create(name)
    data = {"state": state.value, "exit_code": 0}
    with monkeypatch.context() as then:
        then.setattr("dttui.timestamps.time.time", lambda: ended_at)
        log = EventLog(directory.events)
        log.add(EventKind.JOB_STATE, "", data=data)
        if state.is_final:
            log.add(EventKind.OUTCOME, "", data=data)
    logs = directory.logs(0, "gpu1")
    logs.mkdir(parents=True)
    (logs / "0.out").write_bytes(b"x" * 100_000)
    return directory


def left() -> set[str]:
    return {path.name for path in locations.jobs_directory().iterdir()}


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch) -> list[JobDirectory]:
    """Five jobs that ended on five days, the newest last, and one of which nothing is known."""
    found = [finish(f"day{day}", 1e9 + day * DAY_S, monkeypatch) for day in range(5)]
    return [*found, finish("lost", 1e9 - DAY_S, monkeypatch, JobState.RUNNING)]


def test_jobs_that_are_over_go_by_their_age_and_the_newest_stay(several: list[JobDirectory]) -> None:
    def chosen(before: float | None = None, keep: int = 0) -> list[str]:
        return [item.job.job_id[:4] for item in removal.choose_finished(before=before, keep=keep)]

    assert chosen(keep=3) == ["day1", "day0"]
    assert chosen(before=1e9 + 2 * DAY_S) == ["day1", "day0"]
    assert chosen(before=1e9 + 4.5 * DAY_S, keep=4) == ["day0"]
    assert chosen(keep=5) == []


def test_a_removed_job_is_gone_with_all_its_files_and_the_others_stay(
    several: list[JobDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    before = left()
    assert main(["remove", several[0].job_id, "day1", "--yes"]) == 0
    assert before - left() == {several[0].job_id, several[1].job_id}
    out, err = capsys.readouterr()
    assert out.startswith("2 jobs removed, 2")
    assert out.endswith(" kB freed\n")
    assert "checkpoints" in err
    assert main(["remove", "--keep", "2", "--yes", "--output", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["job_id"] == several[2].job_id
    assert row["freed_bytes"] > 100_000
    assert main(["remove", "--finished-before", "30d", "--yes"]) == 0
    assert left() == {several[5].job_id}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "remove takes jobs by name"),
        (["day0", "--keep", "1"], "remove takes jobs by name"),
        (["day0"], "no terminal to ask at"),
        (["day0", "lost", "--yes"], "may still run"),
        (["--finished-before", "soon"], '--finished-before: "soon" is no time'),
        (["nothing", "--yes"], "there is no job nothing"),
    ],
)
def test_what_is_not_meant_removes_nothing(
    several: list[JobDirectory], capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    before = left()
    assert main(["remove", *arguments]) in (2, 102)
    assert told in capsys.readouterr().err
    assert left() == before


def test_a_job_of_which_nothing_is_known_goes_only_by_force(several: list[JobDirectory]) -> None:
    assert main(["remove", several[5].job_id, "--yes", "--force"]) == 0
    assert several[5].job_id not in left()


def test_a_job_that_has_a_controller_is_never_removed(
    several: list[JobDirectory], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "LEAVING_S", 0.1)
    (chosen,) = removal.choose([several[0].job_id])
    locks = [several[number].claim() for number in (0, 5)]
    assert main(["remove", several[5].job_id, "--yes", "--force"]) == 2
    assert f"dttui stop {several[5].job_id}" in capsys.readouterr().err
    assert main(["remove", several[0].job_id, "--yes", "--force"]) == 2
    assert "its controller has not ended yet" in capsys.readouterr().err
    with pytest.raises(UsageError, match="runs"):
        removal.remove(chosen)
    assert {several[0].job_id, several[5].job_id} <= left()
    for lock in locks:
        assert lock is not None
        os.close(lock)


def test_a_job_whose_controller_has_told_the_end_and_is_about_to_end_is_removed_once_it_has(
    several: list[JobDirectory],
) -> None:
    lock = several[0].claim()
    assert lock is not None
    leaving = threading.Timer(0.3, os.close, (lock,))
    leaving.start()
    assert main(["remove", several[0].job_id, "--yes"]) == 0
    leaving.join()
    assert several[0].job_id not in left()


def test_hosts_that_were_lost_are_named_before_their_job_goes(capsys: pytest.CaptureFixture[str]) -> None:
    directory = jobs.create("broken")
    log = EventLog(directory.events)
    log.add(EventKind.NODE_STATE, "", node="gpu7", data={"state": "lost"})
    log.add(EventKind.JOB_STATE, "", data={"state": "FAILED", "exit_code": 100})
    log.add(EventKind.OUTCOME, "", data={"state": "FAILED", "exit_code": 100})
    assert main(["remove", "last", "--yes"]) == 0
    assert "gpu7" in capsys.readouterr().err


def test_what_a_removal_that_was_killed_has_left_is_no_job_and_goes_with_the_next(
    several: list[JobDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    rest = several[0].path.with_name(".removed-" + several[0].job_id)
    several[0].path.rename(rest)
    assert main(["ps", "--all", "--output", "jsonl"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5
    assert main(["remove", several[1].job_id, "--yes"]) == 0
    assert not rest.exists()


def test_nothing_looks_after_a_job_that_is_gone(several: list[JobDirectory]) -> None:
    (chosen,) = removal.choose([several[0].job_id])
    removal.remove(chosen)
    assert not ensure_controller(several[0], cleans_up=True)
    assert not several[0].path.exists()


def test_of_the_events_those_of_the_kinds_that_are_asked_for_are_read_and_what_only_looks_like_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = jobs.create("many")
    log = EventLog(directory.events)
    log.add(EventKind.PROGRESS, "", data={"kind": "node_state"})
    log.add(EventKind.NODE_STATE, "", node="a", data={"state": "lost"})
    log.add(EventKind.JOB_STATE, "", data={"state": "FAILED"})
    decoded: list[bytes] = []
    parse = event_log.parse_event

    def counted(line: bytes) -> Event | None:
        decoded.append(line)
        return parse(line)

    monkeypatch.setattr(event_log, "parse_event", counted)
    assert [event.node for event in directory.read_events(EventKind.NODE_STATE)] == ["a"]
    assert len(decoded) == 2
    assert len(directory.read_events()) == 3


def test_a_directory_that_another_job_has_is_neither_taken_nor_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(["aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr("dttui.jobs.directory.os.urandom", lambda _count: bytes.fromhex(next(drawn)))
    monkeypatch.setattr("dttui.jobs.directory.time.strftime", lambda _format: "1121-000000")
    first = jobs.create("same")
    first.document.write_text("job")
    assert jobs.create("same").job_id == "same-1121-000000-bbbb"
    assert first.document.read_text() == "job"


def test_a_directory_that_cannot_be_filled_is_taken_away_again(monkeypatch: pytest.MonkeyPatch) -> None:
    other = jobs.create("other")
    make = Path.mkdir

    def refuse(path: Path, *arguments: Any, **options: Any) -> None:
        if path.name == "logs":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        make(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UsageError, match=r"cannot make .*logs: No space left on device"):
        jobs.create("full")
    assert left() == {other.job_id}


def test_where_a_file_system_has_no_locks_a_claim_fails_and_leaves_no_descriptor_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = jobs.create("a")

    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="No locks available"):
        directory.claim()
    assert os.listdir("/proc/self/fd") == before
