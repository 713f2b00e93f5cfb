"""The journal: what was acknowledged is there, damage costs the damaged line alone, and a full disk costs nothing."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest
from dtagent.locations import write_atomic
from dtagent.supervision import journal
from dtagent.system import allocation
from hypothesis import given
from hypothesis import strategies as st


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
    assert journal.inspect(path).damaged == []


def test_a_flipped_bit_loses_its_own_record_alone_and_is_kept_aside(path: Path) -> None:
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[1].replace(b"1", b"7")
    path.write_bytes(b"\n".join(lines))
    assert numbers(path) == [0, 2]
    damaged = journal.inspect(path).damaged
    assert damaged == [lines[1]]
    for _twice in range(2):
        journal.quarantine(path, damaged)
    assert journal.damaged_path(path).read_bytes() == lines[1] + b"\n"


def test_a_record_whose_newline_was_damaged_is_kept_aside_before_it_is_cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"J")
    journal.append(path, {"number": 9})
    assert numbers(path) == [0, 1, 9]
    assert journal.damaged_path(path).read_bytes() == content.split(b"\n")[2] + b"J\n"


def test_a_record_after_a_long_line_without_an_end_is_read(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x" * (2 * journal.ROOM_BYTES))
    journal.append(path, {"number": 9})
    assert numbers(path) == [0, 1, 2, 9]


def test_the_newest_records_of_an_endless_file_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_BYTES", 100)
    for number in range(50):
        journal.append(path, {"number": number})
    assert numbers(path)[-1] == 49


def test_room_for_a_journal_is_set_aside_when_it_is_made(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal.create(path)
    journal.create(path)
    assert path.stat().st_size == 0
    assert path.stat().st_blocks * 512 >= journal.ROOM_BYTES
    journal.append(path, {"number": 0})
    path.write_bytes(path.read_bytes() + b"torn")
    journal.append(path, {"number": 1})
    assert path.stat().st_blocks * 512 >= journal.ROOM_BYTES
    assert numbers(path) == [0, 1]


def test_no_room_is_told_when_a_journal_is_made_and_not_when_the_file_system_sets_none_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(number: int) -> None:
        def set_aside(_descriptor: int, _size: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(allocation, "set_aside", set_aside)

    refuse(28)
    with pytest.raises(OSError, match="No space left"):
        journal.create(tmp_path / "full")
    refuse(95)
    journal.create(tmp_path / "nfs")
    journal.append(tmp_path / "nfs", {"number": 0})
    assert numbers(tmp_path / "nfs") == [0]


def test_a_record_that_did_not_fit_is_cut_and_the_next_one_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space left"):
        journal.append(path, {"number": 8})
    monkeypatch.setattr(os, "write", write)
    journal.append(path, {"number": 9})
    assert numbers(path) == [0, 1, 2, 9]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was written, synchronised and renamed, in order: the call and the name of the file."""
    found: list[tuple[str, str]] = []

    def record(name: str) -> None:
        real = getattr(os, name)

        def call(subject: int | str | Path, *more: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{subject}") if isinstance(subject, int) else str(subject)
            found.append((name, Path(path).name))
            return real(subject, *more)

        monkeypatch.setattr(os, name, call)

    for name in ("write", "fsync", "fdatasync", "rename"):
        record(name)
    return found


def test_a_record_is_on_disk_before_it_is_acknowledged(path: Path, calls: list[tuple[str, str]]) -> None:
    journal.append(path, {"number": 3})
    assert calls == [("write", path.name), ("fdatasync", path.name)]


def test_a_new_journal_and_the_names_that_lead_to_it_are_on_disk(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    directory = tmp_path / "job" / "0"
    directory.mkdir(parents=True)
    journal.create(directory / "journal.jsonl")
    assert calls == [("fsync", "journal.jsonl"), ("fsync", "0"), ("fsync", "job"), ("fsync", tmp_path.name)]


def test_a_file_is_on_disk_before_it_gets_its_name_and_the_name_before_it_is_acknowledged(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    write_atomic(tmp_path / "start.json", "{}")
    (synced, temporary), (renamed, source), last = calls[-3:]
    assert (synced, renamed, last) == ("fsync", "rename", ("fsync", tmp_path.name))
    assert temporary == source != "start.json"
    assert (tmp_path / "start.json").read_text() == "{}"


def refuse_to_set_aside(_descriptor: int, _size: int) -> None:
    raise OSError(95, "Operation not supported")


def test_where_no_room_can_be_set_aside_a_file_holds_it_and_gives_way_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocation, "set_aside", refuse_to_set_aside)
    path = tmp_path / "journal.jsonl"
    journal.create(path)
    reserve = journal.reserve_path(path)
    assert reserve.stat().st_blocks * 512 >= journal.ROOM_BYTES
    journal.append(path, {"number": 0})
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if not reserve.exists():
            return write(descriptor, data)
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:15])

    monkeypatch.setattr(os, "write", full)
    journal.append(path, {"number": 1})
    assert not reserve.exists()
    assert numbers(path) == [0, 1]
    assert journal.inspect(path).damaged == []


def test_no_room_for_that_file_is_told_when_the_journal_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocation, "set_aside", refuse_to_set_aside)
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) < 1000:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        journal.create(tmp_path / "journal.jsonl")
    assert not journal.reserve_path(tmp_path / "journal.jsonl").exists()


@given(st.binary(max_size=2000))
def test_any_bytes_are_read_without_an_error_and_appended_to(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-bytes.jsonl"
    path.write_bytes(junk)
    journal.read(path)
    journal.append(path, {"number": 9})
    assert journal.read(path)[-1] == {"number": 9}


def test_deeply_nested_junk_with_a_right_checksum_is_damage(tmp_path: Path) -> None:
    body = b"[" * 100_000
    junk = tmp_path / "junk"
    junk.write_bytes(bytes(range(256)) * 20 + b"\n00000000 \n%08x %s\n" % (zlib.crc32(body), body))
    assert journal.read(junk) == []
    assert len(journal.inspect(junk).damaged) > 1


def test_what_was_written_by_an_older_agent_is_read(tmp_path: Path) -> None:
    body = json.dumps({"event": "state", "state": "running"}).encode()
    line = b"%08x %s\n" % (zlib.crc32(body), body)
    (tmp_path / "old").write_bytes(line + b"half\n" + line)
    assert [record["state"] for record in journal.read(tmp_path / "old")] == ["running", "running"]
