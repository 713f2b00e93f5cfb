"""What a supervisor makes anew of what ranks have written: their last word, and nothing that they took away."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from dtagent.locations import AttemptFiles, make_private, write_atomic
from dtagent.protocol.jobs import AttemptKey
from dtagent.supervision import journal, records
from dtagent.supervision.family import Family
from dtagent.supervision.records import Records


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
