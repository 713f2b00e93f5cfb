"""Which attempts run: found once by a search, and told from then on without looking at those that are over."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest
from dtagent.attempts import adoption, preparation
from dtagent.attempts.census import Census
from dtagent.locations import AttemptFiles, make_private
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.preparation import PrepareReply, PrepareRequest
from dtagent.telemetry.rank_use import RankProcess


def make(root: Path, job_id: str) -> AttemptFiles:
    files = AttemptFiles.of(root, job_id, 0)
    make_private(files.ranks)
    files.lock.touch()
    return files


def start(files: AttemptFiles, *ranks: int) -> None:
    files.start.write_text(json.dumps({"ranks": list(ranks)}))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The locks that were looked at."""
    found: list[Path] = []
    real = adoption.is_locked

    def is_locked(path: Path) -> bool:
        found.append(path)
        return real(path)

    monkeypatch.setattr(adoption, "is_locked", is_locked)
    return found


def test_an_attempt_that_is_over_is_not_looked_at_again(tmp_path: Path, looks: list[Path]) -> None:
    old = [make(tmp_path, f"old{number}") for number in range(5)]
    for files in old:
        start(files)
    running = make(tmp_path, "running")
    start(running, 8, 9)
    (running.ranks / "9.json").write_text('{"pid": 12, "start_time": 34}')
    census = Census(tmp_path)
    with running.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert [files.directory for files in census.running()] == [running.directory]
        assert len(looks) == 6
        assert census.running_ranks() == {"running": {9: RankProcess(12, 34, local_rank=1)}}
        assert looks[6:] == [running.lock]
    assert census.running() == []
    assert census.running() == []
    assert looks[7:] == [running.lock]


def test_a_rank_that_is_alone_has_all_the_simulated_gpus_of_its_attempt(tmp_path: Path) -> None:
    files = make(tmp_path, "tf")
    start(files, 2)
    request = PrepareRequest(AttemptKey("tf", 0), 1, "sh", "m", False, (29500, 29999), 0, simulated_slots=3)
    preparation.write(files, request, PrepareReply(str(files.directory), "sh", "p"))
    (files.ranks / "2.json").write_text('{"pid": 12, "start_time": 34}')
    with files.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert Census(tmp_path).running_ranks() == {"tf": {2: RankProcess(12, 34, 0, simulated_gpus=3)}}


def test_local_ranks_are_told_though_somebody_looked_before_the_request_was_on_disk(tmp_path: Path) -> None:
    files = make(tmp_path, "new")
    (files.ranks / "9.json").write_text('{"pid": 12, "start_time": 34}')
    census = Census(tmp_path)
    with files.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert census.running_ranks() == {"new": {9: RankProcess(12, 34)}}
        start(files, 8, 9)
        assert census.running_ranks() == {"new": {9: RankProcess(12, 34, local_rank=1)}}


def test_an_attempt_that_is_being_started_is_looked_at_until_it_is_over(tmp_path: Path) -> None:
    census = Census(tmp_path)
    assert census.running() == []
    files = make(tmp_path, "new")
    assert census.running() == [], "nobody has said that it will be started"
    census.expect(files)
    assert census.running() == [], "its lock is not held yet"
    with files.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert [item.directory for item in census.running()] == [files.directory]
        start(files)
        assert [item.directory for item in census.running()] == [files.directory]
    assert census.running() == []


def test_an_attempt_that_is_expected_first_of_all_hides_none_that_runs(tmp_path: Path) -> None:
    before, after = make(tmp_path, "before"), make(tmp_path, "after")
    start(before)
    census = Census(tmp_path)
    with before.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        census.expect(after)
        assert [files.directory for files in census.running()] == [before.directory]


def test_somebody_else_who_looks_at_a_lock_is_not_taken_for_who_holds_it(tmp_path: Path) -> None:
    files = make(tmp_path, "over")
    with files.lock.open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not adoption.is_locked(files.lock)
