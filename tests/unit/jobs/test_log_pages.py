"""Any lines of a log by their numbers, however long it is, as it grows, is replaced, or has a hole."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from dtagent.system import allocation

from dttui.jobs import log_pages
from dttui.jobs.log_masks import write_masks
from dttui.jobs.log_pages import LogPages, RecentLines, save_lines
from dttui.jobs.sparse_files import last_hole_end
from dttui.tui.log_scan import Sought


def written(path: Path, count: int, first: int = 0) -> list[str]:
    lines = [f"line {number} " + "x" * (number * 7 % 90) for number in range(first, first + count)]
    with path.open("a", encoding="utf-8") as stream:
        stream.write("".join(f"{line}\n" for line in lines))
    return lines


def known(path: Path) -> LogPages:
    """Return all lines of a file, as a screen comes to know them."""
    pages = LogPages(path)
    while pages.grow():
        pass
    pages.count_earlier()()
    return pages


@pytest.fixture(params=[1 << 20, 300], ids=["read at once", "read in small parts"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(log_pages, "READ_BYTES", request.param)
    monkeypatch.setattr(log_pages, "MOST_AT_ONCE", 4000)
    monkeypatch.setattr(log_pages, "TAIL_BYTES", 5000)
    return tmp_path / "0.out"


def test_any_lines_are_those_of_their_numbers(path: Path) -> None:
    lines = written(path, 3000)
    pages = known(path)
    assert (pages.first, pages.end) == (0, 3000)
    chosen = random.Random(7)
    for _each in range(200):
        start, count = chosen.randrange(-5, 3005), chosen.randrange(1, 700)
        assert pages.lines(start, count) == lines[max(0, start) : max(0, start + count)]


def test_the_end_is_there_at_once_and_what_comes_before_once_it_is_counted(path: Path) -> None:
    lines = written(path, 1000)
    pages = LogPages(path)
    while pages.grow():
        pass
    assert not pages.is_counted
    tail = pages.lines(0, 1000)
    assert 50 < len(tail) < 200
    assert tail == lines[-len(tail) :]
    take = pages.count_earlier()
    more = written(path, 10, 1000)
    pages.grow()
    assert take() == 1000 - len(tail)
    assert pages.is_counted
    assert take() == 0
    while pages.grow():
        pass
    assert pages.lines(0, 2000) == [*lines, *more]


def test_a_line_counts_once_it_is_whole(path: Path) -> None:
    pages = LogPages(path)
    assert not pages.grow()
    path.write_bytes(b"one\ntwo")
    assert pages.grow()
    assert pages.lines(0, 9) == ["one"]
    with path.open("ab") as stream:
        stream.write(b" halves\n")
    assert pages.grow()
    assert not pages.grow()
    assert pages.lines(0, 9) == ["one", "two halves"]


def test_a_file_that_is_replaced_is_another(path: Path) -> None:
    written(path, 500)
    pages = known(path)
    late = LogPages(path)
    late.grow()
    take = late.count_earlier()
    other = path.with_suffix(".new")
    other.write_bytes(b"another\n")
    other.rename(path)
    assert pages.grow()
    assert pages.lines(0, 3) == ["another"]
    late.grow()
    assert take() == 0
    assert late.lines(0, 3) == ["another"]


def test_what_is_dropped_from_the_middle_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "0.out"
    lines = written(path, 20_000)
    size = path.stat().st_size
    with path.open("r+b") as stream:
        begin, length = 256 * 1024, 512 * 1024
        stream.seek(begin)
        rest = path.read_bytes()[begin + length :]
        stream.truncate(begin)
        stream.seek(begin + length)
        stream.write(rest)
    with path.open("rb") as stream:
        assert last_hole_end(stream.fileno()) == begin + length
    assert path.stat().st_size == size
    pages = known(path)
    shown = pages.lines(0, 20_000)
    assert shown[:100] == lines[:100]
    assert shown[-100:] == lines[-100:]
    assert "\0" not in "".join(shown)
    assert 9_000 < len(shown) < 20_000


def test_what_is_dropped_after_it_was_counted_is_noticed_and_the_rest_counted_anew(tmp_path: Path) -> None:
    path = tmp_path / "0.out"
    lines = written(path, 20_000)
    pages = known(path)
    with path.open("r+b") as stream:
        allocation.punch(stream.fileno(), 64 * 1024, 512 * 1024)
    assert pages.lines(8_000, 10) == [], "they are gone"
    assert pages.grow()
    assert pages.generation == 1
    pages.count_earlier()()
    shown = pages.lines(0, 20_000)
    assert shown[:100] == lines[:100]
    assert shown[-100:] == lines[-100:]
    assert len(shown) == pages.end < 20_000


def test_a_secret_is_neither_shown_nor_found(path: Path) -> None:
    path.write_bytes(b"before\ntoken hunter2\nafter\n")
    write_masks(path, [(13, 20)])
    pages = known(path)
    assert pages.lines(0, 3) == ["before", pages.lines(1, 1)[0], "after"]
    assert "hunter2" not in "".join(pages.lines(0, 3))
    assert pages.find(Sought.text("hunter"), 0, 3) == []


@pytest.mark.parametrize("kind", ["a file", "the newest of several"])
def test_lines_are_found_by_words_in_any_case(kind: str, path: Path) -> None:
    lines = [f"step {number}" for number in range(2000)]
    lines[700], lines[1999], lines[5] = "RuntimeError: gone", "an ERROR again", "尺寸 错误 İ"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    recent = RecentLines(1500)
    recent.add(lines)
    store = known(path) if kind == "a file" else recent
    assert store.find(Sought.text("error"), 0, 5000) == [700, 1999]
    assert store.find(Sought.text("Error"), 0, 5000) == [700]
    assert store.find(Sought.text("error"), 701, 1000) == []
    assert store.find(Sought.text("错误"), 0, 5000) == ([5] if kind == "a file" else [])
    assert store.find(Sought(("gone", "again"), re.compile("gone|again")), 0, 5000) == [700, 1999]


def test_what_is_taken_out_of_a_line_hides_nothing_from_a_search(path: Path) -> None:
    path.write_bytes(b"plain\n\x1b[31mERROR\x1b[0m: disk full\n 10%\r 20%\n")
    assert known(path).find(Sought.text("error: disk"), 0, 9) == [1]


def test_lines_are_saved_as_far_as_they_are_there(path: Path, tmp_path: Path) -> None:
    lines = written(path, 1000)
    pages = known(path)
    target = tmp_path / "saved"
    assert save_lines(pages, str(target), [3, 4, 700, 999, 5000]) == 4
    assert target.read_text().splitlines() == [lines[3], lines[4], lines[700], lines[999]]
    recent = RecentLines(10)
    recent.add(str(number) for number in range(25))
    assert save_lines(recent, str(tmp_path / "recent"), [3, 16, 17, 24]) == 3
    assert (tmp_path / "recent").read_text() == "16\n17\n24\n"


def test_of_several_logs_the_newest_lines_stay() -> None:
    recent = RecentLines(3)
    recent.add(["a", "b"])
    assert (recent.first, recent.end, recent.lines(0, 9)) == (0, 2, ["a", "b"])
    recent.add(["c", "d", "e"])
    assert (recent.first, recent.end, recent.lines(0, 9)) == (2, 5, ["c", "d", "e"])
    assert recent.lines(3, 1) == ["d"]
