"""What a screen shows of log files: their end, what is added, and never a control character."""

from __future__ import annotations

from pathlib import Path

from dttui.jobs import JobDirectory
from dttui.jobs.log_window import FIRST_BYTES, MAX_LINE, LogWindow, shown


def write(directory: JobDirectory, stream: str, content: bytes) -> None:
    path = directory.logs(0, "gpu1") / stream
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(content)


def test_only_the_end_of_a_long_log_is_read_and_then_what_is_added(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    write(directory, "0.out", b"".join(b"line %d\n" % number for number in range(100_000)))
    window = LogWindow(directory, 0, "gpu1", "0.out")
    first = window.poll()
    assert first[-1] == "line 99999"
    assert all(line.startswith("line ") for line in first)
    assert sum(len(line) + 1 for line in first) <= FIRST_BYTES
    write(directory, "0.out", b"half")
    assert window.poll() == []
    write(directory, "0.out", b" and half\n")
    assert window.poll() == ["half and half"]


def test_all_streams_together_say_whose_line_it_is_in_order_of_rank(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    for stream in ("launcher.err", "10.out", "2.err", "2.out"):
        write(directory, stream, b"x\n")
    write(directory, "notes.txt", b"x\n")
    lines = LogWindow(directory, 0, "gpu1", None).poll()
    assert lines == ["  2 err │ x", "  2 out │ x", " 10 out │ x", "launcher err │ x"]


def test_a_log_that_is_not_there_yet_has_no_lines(tmp_path: Path) -> None:
    assert LogWindow(JobDirectory(tmp_path), 0, "gpu1", None).poll() == []
    assert LogWindow(JobDirectory(tmp_path), 0, "gpu1", "0.out").poll() == []


def test_a_line_is_cleaned_cut_and_of_a_progress_bar_the_last_state() -> None:
    assert shown(b"\x1b[31mred\x1b[0m \xff") == "red \N{REPLACEMENT CHARACTER}"
    assert shown(b"1%\r50%\r100%\r") == "100%"
    assert len(shown(b"x" * 10_000)) == MAX_LINE


def test_a_line_without_end_does_not_block_what_follows(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    window = LogWindow(directory, 0, "gpu1", "0.out")
    write(directory, "0.out", b"")
    assert window.poll() == []
    write(directory, "0.out", b"x" * (3 << 20) + b"\nafter\n")
    seen: list[str] = []
    for _attempt in range(5):
        seen += window.poll()
    assert seen[-1] == "after"
