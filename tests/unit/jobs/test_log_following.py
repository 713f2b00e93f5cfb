"""What is followed of log files: their end, what is added, and of what comes too fast the newest, with a count."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from rich.cells import cell_len

from dttui.i18n import speaking
from dttui.jobs import JobDirectory
from dttui.jobs.log_following import LAST_LINES, LINES_AT_ONCE, LINES_PER_S, MAX_LINE, LogFollower, shown_line, watching
from dttui.rpc.token_bucket import TokenBucket
from dttui.tui.log_lines import log_lines
from tests.tui.catalogue import compile_catalogues


def write(directory: JobDirectory, stream: str, content: bytes, node: str = "gpu1") -> None:
    path = directory.logs(0, node) / stream
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(content)


def numbered(count: int, first: int = 0) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(first, first + count))


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    return JobDirectory(tmp_path)


def test_only_the_last_lines_of_a_long_log_are_read_and_then_what_is_added(directory: JobDirectory) -> None:
    write(directory, "0.out", numbered(100_000))
    follower = LogFollower(directory, 0, last_lines=50, allowance=watching())
    (first,) = follower.poll(["gpu1"])
    assert (first.lines, first.left_out) == (numbered(50, 99_950).splitlines(), 0)
    write(directory, "0.out", b"half")
    assert follower.poll(["gpu1"]) == []
    write(directory, "0.out", b" and half\n")
    assert follower.poll(["gpu1"])[0].lines == [b"half and half"]
    write(directory, "0.out", b"no end")
    assert follower.poll(["gpu1"], to_the_end=True)[0].lines == [b"no end"]
    assert follower.poll(["gpu1"], to_the_end=True) == []


def test_all_streams_together_say_whose_line_it_is_in_order_of_rank(directory: JobDirectory) -> None:
    for stream in ("launcher.err", "10.out", "2.err", "2.out"):
        write(directory, stream, b"x\n")
    write(directory, "notes.txt", b"x\n")
    found = LogFollower(directory, 0).poll(["gpu1"])
    assert log_lines(found, "job", among=["2", "10", "launcher"]) == [
        "       2 err │ x",
        "       2 out │ x",
        "      10 out │ x",
        "launcher err │ x",
    ]
    assert log_lines(found, "job") == ["x"] * 4


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("others", [(), ("launcher",), ("service-rendezvous",)])
def test_lines_begin_in_one_column_whoever_wrote_them_and_whenever_they_come(
    directory: JobDirectory, language: str, others: tuple[str, ...]
) -> None:
    compile_catalogues()
    among = ["0", "4095", *others]
    with speaking(language):
        columns = set()
        for process in among:  # Each by itself: none is known to come later.
            write(directory, f"{process}.out", b"x\n", node=process)
            (text,) = log_lines(LogFollower(directory, 0).poll([process]), "job", among=among)
            columns.add(cell_len(text.partition("│")[0]))
    assert len(columns) == 1


def test_only_files_that_are_wanted_are_followed_on_whatever_node_they_are(directory: JobDirectory) -> None:
    for node in ("gpu1", "gpu2"):
        for stream in ("0.out", "0.err", "10.out", "launcher.out"):
            write(directory, stream, b"x\n", node)
    found = LogFollower(directory, 0, takes=lambda process, _stream: process == "0").poll(["gpu1", "gpu2", "gpu3"])
    assert [(part.node, part.rank, part.stream) for part in found] == [
        ("gpu1", 0, "err"),
        ("gpu1", 0, "out"),
        ("gpu2", 0, "err"),
        ("gpu2", 0, "out"),
    ]


def test_a_log_that_is_not_there_yet_has_no_lines(directory: JobDirectory) -> None:
    follower = LogFollower(directory, 0, last_lines=1)
    assert follower.poll(["gpu1"]) == []
    write(directory, "0.out", b"one\ntwo\n")
    assert follower.poll(["gpu1"])[0].lines == [b"one", b"two"], "the last lines are of what was there at first"


def test_a_line_is_cleaned_cut_and_of_a_progress_bar_the_last_state() -> None:
    assert shown_line(b"\x1b[31mred\x1b[0m \xff") == "red \N{REPLACEMENT CHARACTER}"
    assert shown_line(b"1%\r50%\r100%\r") == "100%"
    assert shown_line(b"".join(b"%d%% %s\r" % (done, b"#" * 1000) for done in range(101))).startswith("100%")
    long = shown_line(b"x" * 100_000)
    assert (len(long), long[-1]) == (MAX_LINE, "…")


def test_a_line_without_end_does_not_block_what_follows(directory: JobDirectory) -> None:
    follower = LogFollower(directory, 0, allowance=watching())
    write(directory, "0.out", b"")
    assert follower.poll(["gpu1"]) == []
    write(directory, "0.out", b"x" * (3 << 20) + b"\nafter\n")
    seen: list[bytes] = []
    while found := follower.poll(["gpu1"]):
        seen += found[0].lines
    assert seen[-1] == b"after"


def test_of_what_comes_too_fast_the_newest_lines_are_shown_and_every_other_one_is_counted(
    directory: JobDirectory,
) -> None:
    clock = [100.0]
    follower = LogFollower(directory, 0, allowance=TokenBucket(LINES_PER_S, LINES_AT_ONCE, lambda: clock[0]))
    written, seen, counted = 0, 0, 0
    for _second in range(20):
        write(directory, "0.out", numbered(100_000, written))
        written += 100_000
        clock[0] += 1.0
        for part in follower.poll(["gpu1"]):
            assert part.lines[-1] == b"line %d" % (written - 1)
            seen, counted = seen + len(part.lines), counted + part.left_out
    assert seen <= LINES_AT_ONCE + 20 * LINES_PER_S
    write(directory, "0.out", numbered(5000, written))
    for part in follower.poll(["gpu1"], to_the_end=True):
        assert part.lines == numbered(LAST_LINES, written + 5000 - LAST_LINES).splitlines()
        seen, counted = seen + len(part.lines), counted + part.left_out
    assert follower.poll(["gpu1"], to_the_end=True) == []
    assert seen + counted == written + 5000


def test_lines_that_come_while_others_are_left_out_are_not_forgotten_in_the_count(directory: JobDirectory) -> None:
    done = threading.Event()

    def flood() -> None:
        for block in range(300):
            write(directory, "0.out", numbered(1000, block * 1000))
        done.set()

    follower, seen, counted = LogFollower(directory, 0, allowance=TokenBucket(1e9, 2000)), 0, 0
    writer = threading.Thread(target=flood)
    writer.start()
    is_last = False
    while not is_last:
        is_last = done.is_set()
        for part in follower.poll(["gpu1"], to_the_end=is_last):
            assert part.lines[0] == b"line %d" % (seen + counted + part.left_out)
            seen, counted = seen + len(part.lines), counted + part.left_out
    writer.join()
    assert seen + counted == 300_000


def test_what_one_file_does_not_need_others_have_and_a_flood_hides_no_other_rank(directory: JobDirectory) -> None:
    clock = [100.0]
    follower = LogFollower(directory, 0, allowance=TokenBucket(LINES_PER_S, LINES_AT_ONCE, lambda: clock[0]))
    for stream, count in (("0.out", 50_000), ("1.out", 60_000), ("2.out", 10)):
        write(directory, stream, numbered(count))
    flooded, also, quiet = follower.poll(["gpu1"])
    assert (len(quiet.lines), quiet.left_out) == (10, 0)
    assert (len(flooded.lines), len(also.lines)) == ((LINES_AT_ONCE - 10) // 2,) * 2
    assert flooded.left_out + len(flooded.lines) == 50_000
    write(directory, "2.out", b"more\n")
    assert follower.poll(["gpu1"]) == [], "nothing is left of what may be shown"
    clock[0] += 1.0
    (more,) = follower.poll(["gpu1"])
    assert (more.lines, more.left_out) == ([b"more"], 0)


def test_who_does_not_watch_but_reads_gets_every_line(directory: JobDirectory) -> None:
    write(directory, "0.out", numbered(300_000))
    follower, seen = LogFollower(directory, 0), 0
    while found := follower.poll(["gpu1"]):
        assert found[0].left_out == 0
        seen += len(found[0].lines)
    assert seen == 300_000
