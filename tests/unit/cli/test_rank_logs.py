"""What ranks print, among the states of their job: whose, in which order, and to a reader who stands still."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import pytest
from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.cli import main
from dttui.cli.rank_logs import RankPrinter, Ranks, chosen_ranks
from dttui.cli.showing import in_order
from dttui.i18n import set_language
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.following import JobFollower
from dttui.jobs.log_following import LINES_AT_ONCE
from dttui.planning.models import PlannedProcess
from tests.tui.catalogue import compile_catalogues
from tests.unit.jobs.test_follow import plan_for

TOKEN = "hf_" + "a" * 30


@pytest.fixture
def directory() -> Iterator[JobDirectory]:
    directory = jobs.create("x")
    directory.plan.write_text(plan_for("a", "b").model_dump_json())
    yield directory
    set_language("en")


def write(directory: JobDirectory, stream: str, text: str, node: str = "a", attempt: int = 0) -> None:
    path = directory.logs(attempt, node) / stream
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def log(directory: JobDirectory, state: str, attempt: int = 0) -> None:
    EventLog(directory.events).add(EventKind.JOB_STATE, state.lower(), attempt=attempt, data={"state": state})


def end(directory: JobDirectory, attempt: int = 0) -> None:
    log(directory, "SUCCEEDED", attempt)
    EventLog(directory.events).add(EventKind.OUTCOME, "", data={"state": "SUCCEEDED", "exit_code": 0})


def shows(directory: JobDirectory, ranks: Ranks = (0,), output: str = "human", **options: Any) -> None:
    """Show all that there is by now, as one look at it does."""
    printer = RankPrinter(output, ranks, **options)
    follower = JobFollower(directory)
    printer.follow(follower)
    printer.events(in_order(follower.poll()))


def test_the_lines_of_rank_0_come_to_stdout_clean_and_without_tokens_and_states_to_stderr(
    directory: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    write(directory, "0.out", f"\x1b[31mred\x1b[0m {TOKEN}\n50%\r100%\nno end")
    write(directory, "1.out", "another's\n", "b")
    write(directory, "launcher.err", "launcher's\n")
    log(directory, "RUNNING")
    shows(directory)
    printed = capsys.readouterr()
    assert printed.out == "red •••\n100%\n"
    assert "RUNNING" in printed.err
    end(directory)
    shows(directory, is_raw=True)
    assert capsys.readouterr().out == f"red {TOKEN}\n100%\nno end\n"


def test_of_several_ranks_each_line_says_whose_it_is(
    directory: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    write(directory, "0.out", "one\n")
    write(directory, "10.err", "ten\n", "b")
    write(directory, "1.out", "another\n", "b")
    write(directory, "launcher.err", "started\n", "b")
    shows(directory, (1, 0))
    assert capsys.readouterr().out == "[0] one\n[1] another\n"
    shows(directory, "all")
    assert capsys.readouterr().out == "[0] one\n[1] another\n[10] ten\n[b launcher] started\n"
    shows(directory, ())
    assert capsys.readouterr().out == ""


def test_of_a_command_that_starts_its_own_ranks_what_itself_prints_comes_with_those_of_its_node(
    directory: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_for("a", "b")
    nodes = [
        node.model_copy(
            update={"processes": (PlannedProcess(name="launcher", argv=("x",), env={}, cwd="", starts_ranks=True),)}
        )
        for node in plan.nodes
    ]
    directory.plan.write_text(plan.model_copy(update={"nodes": tuple(nodes)}).model_dump_json())
    write(directory, "launcher.out", "step 1\n")
    write(directory, "launcher.out", "another's\n", "b")
    end(directory)
    shows(directory)
    assert capsys.readouterr().out == "step 1\n"
    shows(directory, (0, 1))
    assert capsys.readouterr().out == "[a launcher] step 1\n[b launcher] another's\n"
    assert main(["logs", directory.job_id, "--rank", "1"]) == 0
    assert capsys.readouterr().out == "another's\n"


def test_as_data_each_line_is_an_event_before_the_outcome(
    directory: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    write(directory, "0.err", f"a {TOKEN}\n")
    log(directory, "RUNNING")
    end(directory)
    shows(directory, "all", "jsonl")
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["kind"] for row in rows] == ["job_state", "log", "job_state", "outcome"]
    del rows[1]["time"]
    line = {"kind": "log", "attempt": 0, "node": "a", "rank": 0, "stream": "err", "line": "a •••"}
    assert rows[1] == {"seq": -1, **line}


def test_a_new_attempt_goes_on_with_its_own_logs_and_no_line_comes_twice(
    directory: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether somebody looks often, or once at the end."""
    printer, follower = RankPrinter("jsonl", (0,)), JobFollower(directory)
    printer.follow(follower)

    def look() -> None:
        printer.events(in_order(follower.poll()))

    log(directory, "RUNNING")
    write(directory, "0.out", "first\n")
    look()
    write(directory, "0.out", "its last")
    log(directory, "RESTARTING")
    look()
    log(directory, "RUNNING", 1)
    write(directory, "0.out", "second\n", attempt=1)
    look()
    write(directory, "0.out", "renumbered", "b", attempt=1)
    end(directory, 1)
    look()
    look()
    seen = capsys.readouterr().out
    shows(directory, (0,), "jsonl")
    for told in (seen, capsys.readouterr().out):
        rows = [json.loads(line) for line in told.splitlines()]
        lines = [(row["attempt"], row["line"]) for row in rows if row["kind"] == "log"]
        assert lines == [(0, "first"), (0, "its last"), (1, "second"), (1, "renumbered")]
        order = [row.get("line") or row["data"]["state"] for row in rows]
        assert order.index("its last") > order.index("RESTARTING")
        assert order.index("renumbered") < order.index("SUCCEEDED")


def test_what_is_left_out_of_a_flood_is_said_in_the_readers_language(
    directory: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    write(directory, "0.out", "".join(f"line {number}\n" for number in range(LINES_AT_ONCE + 12_345)))
    shows(directory)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"… 12,345 lines left out; `dttui logs {directory.job_id}` has all"
    assert (len(lines), lines[1]) == (LINES_AT_ONCE + 1, "line 12345")
    compile_catalogues()
    set_language("zh")
    shows(directory, (0, 1))
    assert capsys.readouterr().out.splitlines()[0].startswith("[0] … 略去 12,345 行")
    set_language("en")
    shows(directory, "all", "jsonl")
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (first["rank"], first["left_out"]) == (0, 12_345)


def test_a_reader_who_stands_still_delays_no_state_and_has_each_line_once_in_the_end(
    directory: JobDirectory, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "w", encoding="utf-8") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        printer, follower = RankPrinter("human", (0,)), JobFollower(directory)
        printer.follow(follower)
        for turn in range(3):
            write(directory, "0.out", "".join(f"{turn} {number:04} {'é' * 40}\n" for number in range(3000)))
            log(directory, "RUNNING", 0)
            printer.events(in_order(follower.poll()))
        assert capfd.readouterr().err.count("RUNNING") == 3
        write(directory, "0.out", "the last")
        end(directory)
        printer.events(in_order(follower.poll()))
        got = b""
        while not got.endswith(b"the last\n"):
            printer.events([])
            got += os.read(reader.fileno(), 1 << 16)
    expected = [f"{turn} {number:04} {'é' * 40}" for turn in range(3) for number in range(3000)]
    assert got.decode().splitlines() == [*expected, "the last"]


def test_a_reader_who_has_gone_ends_it_as_it_ends_other_verbs(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(directory, "0.out", "one\n")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        with pytest.raises(BrokenPipeError):
            shows(directory)
    monkeypatch.setattr("sys.stdout", None)
    shows(directory)


@pytest.mark.parametrize(
    ("output", "given", "expected"),
    [
        ("human", None, (0,)),
        ("json", None, ()),
        ("jsonl", None, ()),
        ("jsonl", (3,), (3,)),
        ("human", (), ()),
        ("human", "all", "all"),
    ],
)
def test_rank_0_is_shown_to_a_person_and_else_what_is_asked_for(
    output: str, given: Ranks | None, expected: Ranks
) -> None:
    assert chosen_ranks(Namespace(output=output, logs=given)) == expected


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--apply", "job.yaml", "--logs", "0", "--output", "json"), "no JSON document"),
        (("--apply", "job.yaml", "--logs", "0", "--detach"), "--logs and --detach exclude each other"),
        (("apply", "job.yaml", "--logs", "all", "--dry-run"), "--logs and --dry-run exclude each other"),
        (("--logs", "0", "ps"), "--logs goes with apply, again, restart and attach"),
        (("--raw", "ps"), "--raw goes with apply, again, restart and attach"),
        (("attach", "--raw", "--output", "jsonl"), "--raw goes with --logs alone"),
    ],
)
def test_lines_of_ranks_where_none_are_shown_are_refused(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(words)) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "x", "0,", "-1", "0-3", "ALL", "0;1", "1.5", "9" * 30])
def test_what_names_no_ranks_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["attach", f"--logs={text}"])
    assert "names no ranks" in capsys.readouterr().err


def test_attaching_to_a_job_that_is_over_shows_the_last_lines_before_the_outcome(
    directory: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    write(directory, "0.out", "".join(f"line {number}\n" for number in range(100)))
    log(directory, "RUNNING")
    end(directory)
    assert main(["attach", directory.job_id]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:20] == [f"line {number}" for number in range(80, 100)]
    assert lines[20].startswith(f"{directory.job_id} SUCCEEDED")
    assert main(["attach", directory.job_id, "--logs", "none"]) == 0
    assert "line" not in capsys.readouterr().out
    assert main(["attach", directory.job_id, "--logs", "7"]) == 2
    assert "has no rank 7" in capsys.readouterr().err
    assert main(["attach", directory.job_id, "--logs", "all", "--output", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(row["kind"] == "log" for row in rows) == 100
    assert rows[-1]["kind"] == "outcome"
