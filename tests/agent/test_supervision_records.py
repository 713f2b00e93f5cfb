"""What a supervisor makes anew of what ranks have written: their last word, and nothing that they took away."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from dtagent.locations import AttemptFiles, make_private, write_atomic
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.supervision import journal, records
from dtagent.supervision.family import Family
from dtagent.supervision.records import Records
from dtagent.system import processes


@pytest.fixture
def files(tmp_path: Path) -> AttemptFiles:
    files = AttemptFiles(tmp_path / "0")
    for directory in (files.directory, files.logs, files.ranks, files.failures):
        make_private(directory)
    journal.create(files.journal)
    files.lock.touch()
    return files


@pytest.fixture
def kept(files: AttemptFiles, monkeypatch: pytest.MonkeyPatch) -> Records:
    monkeypatch.setattr(records, "LOOK_S", 0.0)
    return Records(files, lambda: Family(AttemptKey("none", 0), 0))


def there(files: AttemptFiles) -> dict[str, str]:
    return {path.name: path.read_text() for path in files.ranks.iterdir()}


def test_what_a_rank_takes_away_of_an_earlier_round_does_not_come_back(files: AttemptFiles, kept: Records) -> None:
    write_atomic(files.ranks / "3.json", "before")
    kept.look()
    (files.ranks / "3.json").unlink()
    write_atomic(files.ranks / "2.json", "now")
    for _look in range(3):
        kept.look()
    assert there(files) == {"2.json": "now"}


def test_what_is_made_anew_is_what_the_ranks_said_last(files: AttemptFiles, kept: Records) -> None:
    write_atomic(files.ranks / "0.group.json", "none")
    kept.look()
    write_atomic(files.ranks / "0.group.json", "one")
    kept.look()
    shutil.rmtree(files.directory)
    kept.look()
    assert there(files) == {"0.group.json": "one"}
    (files.ranks / "0.group.json").unlink()
    kept.look()
    assert there(files) == {}


def test_a_log_that_was_removed_while_the_disk_was_full_is_copied_once_there_is_room(
    files: AttemptFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No descriptor is kept of what could not be made, and nothing that the process printed is lost."""
    monkeypatch.setattr(records, "LOOK_S", 0.0)
    log, write, is_full = files.logs / "0.out", os.pwrite, True

    def write_where_there_is_room(descriptor: int, data: bytes, offset: int) -> int:
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data, offset)

    with log.open("ab", 0) as out, subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=out) as cat:
        started = processes.identify(cat.pid)
        assert started is not None
        kept = Records(files, lambda: Family(AttemptKey("none", 0), 0, members=(started,)))
        out.write(b"step 1\n")
        monkeypatch.setattr(os, "pwrite", write_where_there_is_room)
        shutil.rmtree(files.directory)
        for _look in range(3):
            kept.look()
        is_full = False
        kept.look()
        assert log.read_bytes() == b"step 1\n"
        assert cat.stdin is not None
        cat.stdin.close()
