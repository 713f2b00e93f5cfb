"""Copies of logs: what a host no longer has is told in them, and a later controller finds its place again."""

from __future__ import annotations

import base64
import contextlib
import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind
from dtagent.protocol.logs import LogChunk
from dtagent.protocol.rpc import MAX_CHUNK_BYTES
from hypothesis import given
from hypothesis import strategies as st

from dttui.engine.copies.log_copy import LogCopy
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.rpc.flow_control import FIRST_GRANT_BYTES, GRANT_S, MIN_GRANT_BYTES, FlowControl


def chunk(offset: int, data: bytes, gap: int = 0, *, inode: int | None = 7, is_new: bool = False) -> LogChunk:
    return LogChunk("0.out", offset, base64.b64encode(data).decode(), gap, inode, is_new)


def put(copy: LogCopy, offset: int, data: bytes, gap: int = 0, *, inode: int | None = 7, is_new: bool = False) -> None:
    part = chunk(offset, data, gap, inode=inode, is_new=is_new)
    assert copy.accepts(part)
    copy.write(part, data)


@contextlib.contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """A write that goes beyond is cut short and fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "gpu1"


def test_a_gap_is_told_in_a_line_of_its_own_and_offsets_go_on(folder: Path) -> None:
    copy = LogCopy(folder)
    put(copy, 0, b"one\ntw")
    put(copy, 1_000_006, b"end\n", 1_000_000)
    assert (folder / "0.out").read_text() == (
        "one\ntw\n… 1,000,000 bytes of this log were not kept on the host …\nend\n"
    )
    assert copy.offsets == {"0.out": 1_000_010}
    assert copy.inodes == {"0.out": 7}


def test_what_there_is_no_room_for_is_asked_for_again_and_nothing_comes_twice(folder: Path) -> None:
    copy = LogCopy(folder)
    put(copy, 0, b"one\n")
    with files_no_longer_than(6), pytest.raises(OSError, match="No space"):
        put(copy, 4, b"two\nthree\n")
    assert copy.offsets == {"0.out": 4}
    assert LogCopy(folder).offsets == {"0.out": 4}
    put(copy, 4, b"two\nthree\n")
    assert (folder / "0.out").read_text() == "one\ntwo\nthree\n"


def test_a_log_that_was_given_up_says_so_at_its_end(folder: Path) -> None:
    copy = LogCopy(folder)
    put(copy, 0, b"one\nhalf")
    copy.break_off("0.out")
    assert (
        (folder / "0.out").read_text().endswith("half\n… the rest of this log was not fetched: the stop was forced …\n")
    )


def test_a_log_that_was_given_up_is_gone_on_with_where_it_was_left(folder: Path) -> None:
    copy = LogCopy(folder)
    put(copy, 0, b"one\nhalf")
    copy.break_off("0.out")
    assert copy.offsets == {"0.out": 8}
    later = LogCopy(folder)
    assert later.offsets == {"0.out": 8}
    put(later, 8, b" of it\ntwo\n")
    assert (folder / "0.out").read_text().endswith("the stop was forced …\n of it\ntwo\n")
    assert LogCopy(folder).offsets == {"0.out": 19}


def test_events_that_there_is_no_room_for_are_kept_until_there_is_and_both_is_told(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    log = EventLog(directory.events)
    log.add(EventKind.PROGRESS, "first")
    with files_no_longer_than(directory.events.stat().st_size + 10):
        log.add(EventKind.PROGRESS, "second")
        log.add(EventKind.PROGRESS, "third")
        assert not log.flush()
        assert [event.message for event in directory.read_events()] == ["first"]
        assert [json.loads(line)["seq"] for line in log.unwritten()] == [1, 2, 3]
        assert [json.loads(line)["seq"] for line in log.unwritten(3)] == [3]
    assert log.flush()
    assert log.unwritten() == []
    events = directory.read_events()
    assert [event.seq for event in events] == list(range(5))
    assert [event.message for event in events if event.kind is EventKind.PROGRESS] == ["first", "second", "third"]
    found = [(event.data["code"], event.data["severity"]) for event in events if event.kind is EventKind.FINDING]
    assert found == [("no-room-here", "warning"), ("no-room-here", "info")]


def test_a_later_controller_goes_on_behind_a_gap(folder: Path) -> None:
    put(LogCopy(folder), 0, b"plain")
    assert LogCopy(folder).offsets == {"0.out": 5}
    put(LogCopy(folder), 5 + 4096, b"more\n", 4096, inode=None)
    again = LogCopy(folder)
    assert again.offsets == {"0.out": 5 + 4096 + 5}
    assert again.inodes == {}
    put(again, 5 + 4096 + 5, b"end\n")
    assert LogCopy(folder).offsets == {"0.out": 5 + 4096 + 9}


def test_a_file_that_was_replaced_is_told_and_copied_from_its_beginning(folder: Path) -> None:
    copy = LogCopy(folder)
    put(copy, 0, b"first")
    put(copy, 0, b"second\n", inode=8, is_new=True)
    text = (folder / "0.out").read_text()
    assert text.startswith("first\n… the script replaced this file")
    assert text.endswith(" …\nsecond\n")
    assert copy.offsets == {"0.out": 7}
    assert LogCopy(folder).offsets == {"0.out": 7}


@pytest.mark.parametrize(
    "part",
    [
        chunk(4, b"x"),
        chunk(6, b"x"),
        chunk(6, b"x", 2),
        chunk(4, b"x", -1),
        chunk(3, b"x", is_new=True),
        chunk(-1, b"x", is_new=True, gap=-1),
    ],
)
def test_what_does_not_go_on_where_it_ended_is_not_accepted(folder: Path, part: LogChunk) -> None:
    copy = LogCopy(folder)
    put(copy, 0, b"12345")
    assert not copy.accepts(part)


def test_places_that_cannot_be_read_are_none(folder: Path) -> None:
    put(LogCopy(folder), 0, b"plain")
    for text in ("{", "[]", '{"0.out": "far"}'):
        folder.with_name(f"{folder.name}.places.json").write_text(text)
        assert LogCopy(folder).offsets == {"0.out": 5}


@given(st.lists(st.tuples(st.integers(0, 1 << 22), st.floats(0, 100)), max_size=50))
def test_a_grant_stays_within_what_makes_progress_and_what_an_agent_sends(replies: list[tuple[int, float]]) -> None:
    pace = FlowControl()
    for size, seconds in replies:
        pace.note(size, seconds)
        assert MIN_GRANT_BYTES <= pace.grant_bytes <= MAX_CHUNK_BYTES


@pytest.mark.parametrize("bytes_per_s", [20_000, 125_000, 1_000_000])
def test_a_grant_settles_at_a_quarter_second_of_the_link(bytes_per_s: int) -> None:
    pace = FlowControl()
    assert pace.grant_bytes == FIRST_GRANT_BYTES
    for _ in range(10):
        on_the_wire = int(pace.grant_bytes * 4 / 3)
        pace.note(on_the_wire, on_the_wire / bytes_per_s)
    expected = max(MIN_GRANT_BYTES, min(MAX_CHUNK_BYTES, bytes_per_s * GRANT_S * 3 / 4))
    assert pace.grant_bytes == pytest.approx(expected, rel=0.01)


def test_that_a_host_keeps_no_more_is_said_once_however_often_it_was_asked(tmp_path: Path) -> None:
    copy = LogCopy(tmp_path / "logs")
    put(copy, 0, b"step 1\n")
    copy.mark_the_end()
    LogCopy(tmp_path / "logs").mark_the_end()
    said = "… if there was more of this log, the host has not kept it …"
    assert (tmp_path / "logs/0.out").read_text() == f"step 1\n{said}\n"
