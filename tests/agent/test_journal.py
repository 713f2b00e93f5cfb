"""The journal: what was acknowledged is there, and damage costs the damaged line alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from dtagent import journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "journal.jsonl"
    for number in range(3):
        journal.append(found, {"number": number})
    return found


def numbers(path: Path) -> list[int]:
    return [record["number"] for record in journal.read(path)]


def test_records_come_back_in_order(path: Path) -> None:
    assert numbers(path) == [0, 1, 2]


def test_a_journal_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert journal.read(tmp_path / "none") == []


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_torn_tail_loses_the_last_record_and_later_ones_are_kept(path: Path, cut: int) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-cut])
    kept = numbers(path)
    journal.append(path, {"number": 9})
    assert numbers(path) == [*kept, 9]
    assert kept == [0, 1, 2][: len(kept)]


def test_a_flipped_bit_loses_its_own_record_alone(path: Path) -> None:
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[1].replace(b"1", b"7")
    path.write_bytes(b"\n".join(lines))
    assert numbers(path) == [0, 2]


def test_any_bytes_are_read_without_an_error(tmp_path: Path) -> None:
    junk = tmp_path / "junk"
    junk.write_bytes(bytes(range(256)) * 20 + b"\n00000000 \n" + b"[" * 100_000)
    assert journal.read(junk) == []
