"""Logs on disk: the cap drops the middle, and whoever reads is told of every byte, either itself or that it is gone."""

from __future__ import annotations

import base64
import os
from dataclasses import replace
from pathlib import Path

import pytest
from dtagent.locations import AttemptFiles
from dtagent.logs import streams
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.logs import FollowRequest
from dtagent.supervision import logcap
from dtagent.supervision.logcap import LogCap
from dtagent.system import allocation

from tests.clock import Clock

MIB = 1 << 20
REQUEST = FollowRequest(AttemptKey("job", 0), inodes={})


@pytest.fixture
def files(tmp_path: Path) -> AttemptFiles:
    found = AttemptFiles(tmp_path)
    found.logs.mkdir()
    return found


class Copy:
    """What a client has of the stream `0.out`: bytes, and holes as it was told of them."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.gaps: list[tuple[int, int]] = []
        self.request = REQUEST
        self.is_new = False

    def read(self, files: AttemptFiles, *, most: int = 256 * 1024) -> int:
        """Take the next chunk; return its length."""
        chunks, _more = streams.read(files, replace(self.request, max_bytes=most))
        taken = 0
        for chunk in chunks:
            assert chunk.stream == "0.out"
            assert chunk.inode is not None
            data = base64.b64decode(chunk.data)
            self.is_new = chunk.is_new_file
            if chunk.is_new_file:
                self.data.clear()
            assert chunk.offset == len(self.data) + chunk.gap_bytes
            if chunk.gap_bytes:
                self.gaps.append((len(self.data), chunk.offset))
            self.data += bytes(chunk.gap_bytes) + data
            self.request = replace(self.request, offsets={"0.out": len(self.data)}, inodes={"0.out": chunk.inode})
            taken += len(data) + chunk.gap_bytes
        return taken

    def read_all(self, files: AttemptFiles) -> None:
        while self.read(files):
            pass


def block(number: int) -> bytes:
    """A MiB that tells which it is, in lines without a zero byte."""
    return b"%07d\n" % number * (MIB // 8)


def append(files: AttemptFiles, data: bytes) -> None:
    with (files.logs / "0.out").open("ab") as stream:
        stream.write(data)


def cap_of(files: AttemptFiles, size: int, told: list[str]) -> LogCap:
    cap = LogCap(files.logs, size, told.append)
    cap.look()
    return cap


def look(cap: LogCap, clock: Clock, after_s: float = logcap.LONGEST_S) -> None:
    """Look again, so much later."""
    clock.now_s += after_s
    cap.look()


def test_below_the_cap_every_byte_is_kept(files: AttemptFiles, clock: Clock) -> None:
    told: list[str] = []
    cap = cap_of(files, 8 * MIB, told)
    for number in range(8):
        append(files, block(number))
        look(cap, clock)
    copy = Copy()
    copy.read_all(files)
    assert copy.data == b"".join(map(block, range(8)))
    assert (copy.gaps, told) == ([], [])


def test_reports_of_metrics_are_kept_within_a_cap_of_their_own(
    files: AttemptFiles, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(logcap, "REPORT_CAP_BYTES", 4 * MIB)
    cap = LogCap(files.logs, 64 * MIB, lambda _told: None, (files.metrics, files.trainer))
    files.trainer.symlink_to("/dev/zero")
    for number in range(12):
        append(files, block(number))
        with files.metrics.open("ab") as stream:
            stream.write(block(number))
        look(cap, clock)
    assert (files.logs / "0.out").stat().st_blocks * 512 >= 12 * MIB
    kept = files.metrics.stat()
    assert kept.st_size == 12 * MIB
    assert 3 * MIB < kept.st_blocks * 512 <= 4 * MIB


def test_each_log_that_loses_its_middle_is_told_once_and_reports_of_metrics_are_not(
    files: AttemptFiles, clock: Clock
) -> None:
    cut: list[str] = []
    cap = LogCap(files.logs, 2 * MIB, lambda _told: None, (files.metrics,), cut.append)
    for number in range(8):
        append(files, block(number))
        with files.metrics.open("ab") as stream:
            stream.write(block(number))
        look(cap, clock)
    assert cut == ["0.out"]


def test_above_the_cap_beginning_and_end_are_kept_and_the_rest_is_told(files: AttemptFiles, clock: Clock) -> None:
    cap = cap_of(files, 8 * MIB, [])
    for number in range(40):
        append(files, block(number))
        look(cap, clock)
    kept = (files.logs / "0.out").stat()
    assert kept.st_size == 40 * MIB
    assert 7 * MIB < kept.st_blocks * 512 <= 8 * MIB
    copy = Copy()
    copy.read_all(files)
    whole = b"".join(map(block, range(40)))
    ((start, end),) = copy.gaps
    assert start == MIB
    assert len(copy.data) == len(whole)
    assert copy.data[:start] == whole[:start]
    assert copy.data[end:] == whole[end:]
    assert end > 32 * MIB


def test_a_client_that_keeps_up_gets_every_byte_of_a_log_beyond_its_cap(files: AttemptFiles, clock: Clock) -> None:
    cap = cap_of(files, 4 * MIB, [])
    copy = Copy()
    for number in range(20):
        append(files, block(number))
        copy.read_all(files)
        look(cap, clock)
    assert copy.gaps == []
    assert copy.data == b"".join(map(block, range(20)))


def test_a_hole_made_while_it_is_read_is_never_taken_for_bytes(
    files: AttemptFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        append(files, block(number))
    pread = os.pread
    holes = [(0, MIB), (2 * MIB - 4096, 3 * MIB)]

    def punch_first(descriptor: int, size: int, offset: int) -> bytes:
        if holes:
            writable = os.open(files.logs / "0.out", os.O_WRONLY)
            allocation.punch(writable, *holes.pop(0))
            os.close(writable)
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", punch_first)
    copy = Copy()
    copy.read_all(files)
    assert copy.gaps == [(0, MIB), (2 * MIB - 4096, 3 * MIB)]
    assert copy.data[MIB : 2 * MIB - 4096] == block(1)[:-4096]
    assert copy.data[3 * MIB :] == block(3)


def test_a_client_that_knows_no_gaps_gets_zeros_and_keeps_its_place(files: AttemptFiles) -> None:
    append(files, block(0) + block(1))
    with (files.logs / "0.out").open("r+b") as stream:
        allocation.punch(stream.fileno(), 0, MIB)
    request = FollowRequest(AttemptKey("job", 0), {"0.out": MIB - 4096})
    ((chunk,), _more) = streams.read(files, request)
    assert (chunk.offset, chunk.gap_bytes) == (MIB - 4096, 0)
    assert base64.b64decode(chunk.data).startswith(bytes(4096) + b"0000001\n")


def test_a_hole_up_to_the_end_is_told_without_bytes(files: AttemptFiles) -> None:
    append(files, b"x")
    os.truncate(files.logs / "0.out", MIB)
    with (files.logs / "0.out").open("r+b") as stream:
        allocation.punch(stream.fileno(), 0, MIB)
    copy = Copy()
    copy.read_all(files)
    assert copy.gaps == [(0, MIB)]


@pytest.mark.parametrize("how", ["replaced", "emptied"])
def test_a_file_that_the_script_replaced_is_told_and_read_from_its_beginning(files: AttemptFiles, how: str) -> None:
    path = files.logs / "0.out"
    append(files, b"first\n")
    copy = Copy()
    copy.read_all(files)
    if how == "replaced":
        path.rename(path.with_name("old.txt"))
        append(files, b"second, and longer\n")
    else:
        path.write_bytes(b"2nd\n")
    assert streams.has_more(streams.sizes(files), copy.request)
    copy.read(files)
    assert copy.is_new
    assert bytes(copy.data) == path.read_bytes()
    copy.read(files)
    assert bytes(copy.data) == path.read_bytes()


def test_a_pipe_or_a_link_in_the_place_of_a_log_is_passed_over(files: AttemptFiles) -> None:
    os.mkfifo(files.logs / "0.out")
    (files.logs / "1.out").symlink_to("/etc/passwd")
    assert streams.read(files, REQUEST) == ([], False)
    cap_of(files, MIB, [])


def test_room_is_shared_so_that_a_flood_hides_nobody(files: AttemptFiles) -> None:
    append(files, block(0))
    for rank in range(1, 16):
        (files.logs / f"{rank}.out").write_bytes(b"alive\n")
    chunks, more = streams.read(files, replace(REQUEST, max_bytes=4096))
    assert {chunk.stream for chunk in chunks} == {f"{rank}.out" for rank in range(16)}
    assert sum(len(base64.b64decode(chunk.data)) for chunk in chunks) <= 4096
    assert more


def test_where_no_hole_can_be_punched_it_is_said_once(
    files: AttemptFiles, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    def refuse(_descriptor: int, _start: int, _end: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(allocation, "punch", refuse)
    told: list[str] = []
    append(files, b"x")
    cap = cap_of(files, MIB, told)
    append(files, block(0) * 3)
    look(cap, clock)
    assert len(told) == 1
    assert "cannot drop part of a file (Operation not supported)" in told[0]


def test_on_a_disk_that_is_nearly_full_logs_give_way(
    files: AttemptFiles, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    told: list[str] = []
    cap = cap_of(files, 1 << 30, told)
    for number in range(24):
        append(files, block(number))
    look(cap, clock)
    assert (files.logs / "0.out").stat().st_blocks * 512 >= 24 * MIB
    monkeypatch.setattr(logcap, "SCARCE_CAP_BYTES", 2 * MIB)
    real = os.statvfs(files.logs)
    full = os.statvfs_result([*real[:3], 1, 1, *real[5:]])
    monkeypatch.setattr(os, "statvfs", lambda _path: full)
    for _round in range(5):
        look(cap, clock)
    assert (files.logs / "0.out").stat().st_blocks * 512 <= 13 * MIB
    assert len(told) == 1
    assert "was full at" in told[0]


def test_a_directory_that_the_script_removed_does_no_harm(files: AttemptFiles, clock: Clock) -> None:
    cap = cap_of(files, MIB, [])
    files.logs.rmdir()
    look(cap, clock)
    assert streams.read(files, REQUEST) == ([], False)


def test_the_faster_a_log_grows_the_sooner_it_is_looked_at(files: AttemptFiles, clock: Clock) -> None:
    assert cap_of(files, 2048 * MIB, []).wait_s() == pytest.approx(logcap.LONGEST_S, abs=0.2)
    cap = cap_of(files, 16 * MIB, [])
    append(files, block(0) * 200)
    look(cap, clock)
    assert cap.wait_s() < 0.1


def test_a_log_that_lies_still_is_looked_at_before_a_burst_can_outgrow_its_cap_by_half(
    files: AttemptFiles, clock: Clock
) -> None:
    cap = cap_of(files, 64 * MIB, [])
    for _full in range(2):
        kept = sum(path.stat().st_blocks * 512 for path in files.logs.iterdir())
        assert kept + cap.wait_s() * logcap.BURST_BYTES_PER_S <= 1.5 * 64 * MIB
        append(files, block(0) * 64)
        look(cap, clock, after_s=60.0)
