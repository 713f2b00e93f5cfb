"""`--since`: what is taken for a time, and where in a log it begins."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from dttui.errors import UsageError
from dttui.jobs.following import GrowingFile
from dttui.jobs.log_times import parse_since

NOW = datetime(2026, 11, 21, 13, 30).timestamp()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("10m", datetime(2026, 11, 21, 13, 20)),
        ("1.5 h", datetime(2026, 11, 21, 12, 0)),
        ("9:05", datetime(2026, 11, 21, 9, 5)),
        ("13:05:30", datetime(2026, 11, 21, 13, 5, 30)),
        ("13:30", datetime(2026, 11, 21, 13, 30)),
        ("13:31", datetime(2026, 11, 20, 13, 31)),
        ("23:50:10", datetime(2026, 11, 20, 23, 50, 10)),
        ("2026-11-20", datetime(2026, 11, 20)),
        ("2026-11-20 23:59:01", datetime(2026, 11, 20, 23, 59, 1)),
        ("2026-11-21T13:05:00+08:00", datetime.fromisoformat("2026-11-21T05:05:00+00:00")),
        ("2026-11-21T05:05:00Z", datetime.fromisoformat("2026-11-21T05:05:00+00:00")),
    ],
)
def test_durations_and_times_are_read_as_people_write_them(text: str, moment: datetime) -> None:
    assert parse_since(text, NOW) == moment.timestamp()


@pytest.mark.parametrize("text", ["", "soon", "10", "25:00", "2026-13-01", "10 minutes", "-5m", "0000-00-00"])
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="is no time and no duration") as caught:
        parse_since(text, NOW)
    assert "13:05" in caught.value.hint


def lines_since(path: Path, text: str, written: datetime, last_lines: int | None = None) -> list[bytes]:
    os.utime(path, (written.timestamp(), written.timestamp()))
    return GrowingFile(path, since=parse_since(text, NOW), last_lines=last_lines).read(to_the_end=True)


def test_lines_go_by_the_times_they_carry_and_those_without_by_the_line_before(tmp_path: Path) -> None:
    path = tmp_path / "0.err"
    path.write_text(
        "starting\n"
        "[2026-11-21 13:00:00,123] INFO old\n"
        "  Traceback of the old one\n"
        "INFO 2026-11-21T13:20:00.5 new\n"
        "  goes with it\n"
        "2026-11-21 13:19:59 a clock that was set back\n"
    )
    now = datetime.fromtimestamp(NOW)
    assert [line.decode()[:6] for line in lines_since(path, "10m", now)] == ["INFO 2", "  goes", "2026-1"]
    assert len(lines_since(path, "13:00", now)) == 5
    assert lines_since(path, "13:21", now) == []
    assert lines_since(path, "10m", now, last_lines=1) == [b"2026-11-21 13:19:59 a clock that was set back"]


def test_a_log_without_times_is_shown_as_a_whole_if_it_was_written_to_since_then(tmp_path: Path) -> None:
    path = tmp_path / "0.out"
    path.write_text("step 1\nstep 2\nmodel 2026-99-99 12:00:00\n")
    assert len(lines_since(path, "13:00", datetime(2026, 11, 21, 13, 1))) == 3
    assert lines_since(path, "13:00", datetime(2026, 11, 21, 12, 59)) == []


def test_a_file_that_is_followed_goes_on_after_the_old_lines(tmp_path: Path) -> None:
    path = tmp_path / "0.out"
    path.write_text("2026-11-21 12:00:00 old\n" * 60_000)
    reader = GrowingFile(path, since=parse_since("13:00", NOW))
    assert reader.read() == []
    with path.open("a") as stream:
        stream.write("new, without a time\n")
    assert reader.read() == [b"new, without a time"]
