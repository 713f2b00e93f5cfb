"""Copies of logs on the login node: bounds for each and for all, marks, and readers that need to know nothing of it."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
from dtagent.protocol.logs import LogChunk

from dttui.diagnosis.evidence import tail_of
from dttui.engine.copies import copy_cap, log_copy
from dttui.engine.copies.copy_cap import CopyCap
from dttui.engine.copies.log_copy import LogCopy
from dttui.jobs import JobDirectory, sparse_files
from dttui.jobs.following import GrowingFile
from dttui.jobs.log_following import LogFollower, watching

CAP = 1 << 20
CHUNK = 128 * 1024
MARK = re.compile(r"… ([0-9,]+) bytes of this log were not kept in this copy … *")


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    return JobDirectory(tmp_path / "job")


def numbered(first: int, size: int) -> bytes:
    """Return lines of 16 bytes, the first with this number."""
    return b"".join(b"line %010d\n" % number for number in range(first, first + size // 16))


def flood(copy: LogCopy, stream: str, size: int) -> None:
    """Let a stream grow by so many bytes."""
    begin = copy.place(stream).offset
    for offset in range(begin, begin + size, CHUNK):
        data = numbered(offset // 16, CHUNK)
        copy.write(LogChunk(stream, offset, base64.b64encode(data).decode(), 0, 7, False), data)


def kept_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def read_all(reader: GrowingFile) -> list[str]:
    lines: list[str] = []
    while found := reader.read():
        lines += [line.decode() for line in found]
    return lines


def assert_complete(lines: list[str], copied_bytes: int) -> None:
    """Each byte is there or counted by a mark, and nothing is out of order or doubled."""
    missing = sum(int(match[1].replace(",", "")) for line in lines if (match := MARK.fullmatch(line)))
    whole = [int(line[5:]) for line in lines if re.fullmatch("line [0-9]{10}", line)]
    assert whole == sorted(set(whole))
    torn = sum(len(line) for line in lines if not MARK.fullmatch(line) and not re.fullmatch("line [0-9]{10}", line))
    # A mark is written over as many bytes of the log as it is long, and counts them.
    assert 0 <= copied_bytes - (16 * len(whole) + torn + missing) <= 2


def test_a_copy_keeps_its_beginning_and_its_end_within_the_cap_and_tells_what_is_missing(
    directory: JobDirectory,
) -> None:
    folder = directory.logs(0, "gpu1")
    copy = LogCopy(folder, CopyCap(CAP))
    flood(copy, "0.out", 5 * CAP)
    path = folder / "0.out"
    assert CAP * 3 // 4 < kept_bytes(path) <= CAP + CHUNK
    assert path.stat().st_size == 5 * CAP
    lines = read_all(GrowingFile(path))
    assert lines[0] == "line 0000000000"
    assert lines[-1] == f"line {5 * CAP // 16 - 1:010}"
    assert sum(bool(MARK.fullmatch(line)) for line in lines) == 1
    assert_complete(lines, 5 * CAP)


def test_who_follows_a_copy_while_it_is_cut_reads_every_line_once(directory: JobDirectory) -> None:
    folder = directory.logs(0, "gpu1")
    copy = LogCopy(folder, CopyCap(CAP))
    reader, lines = GrowingFile(folder / "0.out"), []
    for _each in range(15):
        flood(copy, "0.out", 2 * CHUNK)
        lines += read_all(reader)
    assert [line.decode() for line in numbered(0, 15 * 2 * CHUNK).splitlines()] == lines


def test_who_has_fallen_behind_is_told_what_was_dropped_before_it_was_read(directory: JobDirectory) -> None:
    folder = directory.logs(0, "gpu1")
    copy = LogCopy(folder, CopyCap(CAP))
    flood(copy, "0.out", CAP // 2)
    reader = GrowingFile(folder / "0.out")
    lines = read_all(reader)
    flood(copy, "0.out", 5 * CAP)
    lines += read_all(reader)
    assert_complete(lines, 5 * CAP + CAP // 2)
    assert any(MARK.fullmatch(line) for line in lines)


def test_a_later_controller_goes_on_with_a_copy_that_was_cut(directory: JobDirectory) -> None:
    folder = directory.logs(0, "gpu1")
    flood(LogCopy(folder, CopyCap(CAP)), "0.out", 4 * CAP)
    later = LogCopy(folder, CopyCap(CAP))
    assert later.offsets == {"0.out": 4 * CAP}
    flood(later, "0.out", 4 * CAP)
    assert kept_bytes(folder / "0.out") <= CAP + CHUNK
    assert_complete(read_all(GrowingFile(folder / "0.out")), 8 * CAP)


def test_all_copies_of_an_attempt_have_a_bound_and_the_noisy_ones_give_way(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_cap, "LEAST_BYTES", CAP // 4)
    monkeypatch.setattr(copy_cap, "MOST_CAPS", 4)
    cap = CopyCap(CAP)
    copies = [LogCopy(directory.logs(0, f"gpu{number}"), cap) for number in range(3)]
    flood(copies[0], "9.err", CAP // 4)
    for number in range(3):
        for copy in copies:
            flood(copy, f"{number}.out", 2 * CAP)
    paths = [path for path in directory.path.rglob("*") if path.suffix in (".out", ".err")]
    assert len(paths) == 10
    assert sum(map(kept_bytes, paths)) <= copy_cap.MOST_CAPS * CAP + CHUNK
    assert min(map(kept_bytes, paths)) >= CAP // 4 - 64 * 1024
    assert kept_bytes(directory.logs(0, "gpu0") / "9.err") == CAP // 4
    for path in paths:
        assert_complete(read_all(GrowingFile(path)), path.stat().st_size)


def test_a_copy_that_was_removed_ends_no_bound_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_cap, "LEAST_BYTES", CAP // 4)
    monkeypatch.setattr(copy_cap, "MOST_CAPS", 2)
    cap = CopyCap(CAP)
    removed, *others = (tmp_path / f"{number}.out" for number in range(4))
    for path in (removed, *others):
        path.write_bytes(numbered(0, CAP))
        cap.note(path)
        removed.unlink(missing_ok=True)
    assert sum(map(kept_bytes, others)) <= 2 * CAP + CHUNK


def test_logs_the_screen_and_a_diagnosis_read_a_cut_copy_as_any_other(directory: JobDirectory) -> None:
    folder = directory.logs(0, "gpu1")
    flood(LogCopy(folder, CopyCap(CAP)), "0.out", 8 * CAP)
    last = 8 * CAP // 16 - 1
    many = CAP // 16  # More lines than are kept: from the beginning, over what is missing.
    for lines in (1, 3, many):
        (found,) = LogFollower(directory, 0, last_lines=lines).poll(["gpu1"])
        assert found.lines[0] in (b"line %010d" % (last - lines + 1), b"line %010d" % 0)
    (watched,) = LogFollower(directory, 0, allowance=watching()).poll(["gpu1"])
    assert watched.lines[-1] == b"line %010d" % last
    assert watched.left_out > 0
    assert tail_of(directory, folder / "0.out", str)[-1].text == f"line {last:010}"


def test_lines_since_a_time_are_found_behind_what_is_missing(directory: JobDirectory) -> None:
    folder = directory.logs(0, "gpu1")
    copy = LogCopy(folder, CopyCap(CAP))
    flood(copy, "0.out", 6 * CAP)
    stamped = b"2026-11-21T13:00:00Z early\n2026-11-21T13:05:00Z late\n"
    copy.write(LogChunk("0.out", 6 * CAP, base64.b64encode(stamped).decode(), 0, 7, False), stamped)
    lines = read_all(GrowingFile(folder / "0.out", since=1795266180.0))
    assert lines == ["2026-11-21T13:05:00Z late"]


def test_a_file_that_is_no_log_of_ours_may_end_in_a_hole(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as stream:
        stream.write(b"one\ntwo")
        stream.truncate(1 << 22)
    assert read_all(GrowingFile(path))[:1] == ["one"]
    with path.open("rb") as stream:
        assert sparse_files.kept_parts(stream.fileno())[0][0] == 0


@pytest.fixture
def cannot_punch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_cap, "_punch", lambda *_: False)


@pytest.mark.usefixtures("cannot_punch")
def test_where_no_hole_can_be_punched_a_copy_ends_at_its_cap_and_the_end_follows_at_the_end(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_copy, "HELD_BYTES", CAP // 8)
    folder = directory.logs(0, "gpu1")
    copy = LogCopy(folder, CopyCap(CAP))
    flood(copy, "0.out", 10 * CAP)
    assert (folder / "0.out").stat().st_size <= CAP + 2 * CHUNK
    assert copy.offsets == {"0.out": 10 * CAP}
    # What is only in memory is asked for again by a later controller.
    assert LogCopy(folder, CopyCap(CAP)).offsets["0.out"] <= CAP + 2 * CHUNK
    copy.finish()
    lines = read_all(GrowingFile(folder / "0.out"))
    assert lines[-1] == f"line {10 * CAP // 16 - 1:010}"
    told = "… this file system cannot drop the middle of a file: from here on only the end is kept …"
    assert lines.count(told) == 1
    lines.remove(told)
    assert_complete(lines, 10 * CAP)
    assert LogCopy(folder, CopyCap(CAP)).offsets == {"0.out": 10 * CAP}


@pytest.mark.usefixtures("cannot_punch")
def test_of_a_file_that_the_script_replaced_meanwhile_only_the_new_end_is_kept(directory: JobDirectory) -> None:
    folder = directory.logs(0, "gpu1")
    copy = LogCopy(folder, CopyCap(CAP))
    flood(copy, "0.out", 2 * CAP)
    copy.write(LogChunk("0.out", 0, "", 0, 8, True), b"new one\n")
    copy.finish()
    assert read_all(GrowingFile(folder / "0.out"))[-1] == "new one"
    assert LogCopy(folder, CopyCap(CAP)).offsets == {"0.out": 8}
    assert LogCopy(folder, CopyCap(CAP)).inodes == {"0.out": 8}
