"""What the commands print of jobs that are over, in each format and language."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator

import pytest
from dtagent.protocol.events import Event, EventKind

from dttui import jobs
from dttui.cli import main
from dttui.cli.printing import Printer
from dttui.cli.showing import in_order
from dttui.i18n import msg, recipes, set_language
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.following import JobFollower
from dttui.spec.problems import text_width
from tests.tui.catalogue import compile_catalogues
from tests.unit.jobs.test_follow import plan_for

NCCL_ERROR = {
    "exit_code": 1,
    "error": "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled system error\n"
    "Last error:\nConnect to 10.0.0.2<4711> failed",
}
REASON = "stopped\x1b[31m by 张三\nand more"


@pytest.fixture
def finished() -> Iterator[JobDirectory]:
    directory = jobs.create("x")
    directory.plan.write_text(plan_for("a").model_dump_json())
    log = EventLog(directory.events)
    log.add(EventKind.NODE_STATE, "", node="a", data={"state": "ended"})
    log.add(EventKind.JOB_STATE, REASON, data={"state": "CANCELLED"})
    log.add(EventKind.OUTCOME, REASON, data={"state": "CANCELLED", "exit_code": 103})
    directory.metrics.write_text('{"rank": 0, "step": 7, "loss": 1.5}\n')
    logs = directory.logs(0, "a")
    logs.mkdir(parents=True)
    (logs / "0.out").write_text("one\ntwo 二\nthree\n")
    yield directory
    set_language("en")


def test_stopping_a_job_whose_hosts_stay_lost_says_so_and_exits_with_4(
    finished: JobDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def stop_job(_directory: JobDirectory, *, force: bool) -> None:
        asked.append(force)
        if len(asked) == 2:  # The first controller was about to go, and has not looked.
            EventLog(finished.events).add(EventKind.NODE_STATE, "looked again", node="a", data={"state": "lost"})

    monkeypatch.setattr("dttui.launch.stop_request.stop_job", stop_job)
    EventLog(finished.events).add(EventKind.NODE_STATE, "silent", node="a", data={"state": "lost"})
    assert main(["stop", finished.job_id, "--force"]) == 4
    assert asked == [True, True]
    told = capsys.readouterr().err
    assert "✗ not known to be stopped on a, which could not be reached" in told
    assert f"`dttui stop {finished.job_id}` looks there again" in told


def test_stopping_a_job_of_which_something_cannot_be_ended_names_the_host_and_exits_with_4(
    finished: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    EventLog(finished.events).add(EventKind.NODE_STATE, "pid 7", node="a", data={"state": "unkillable"})
    assert main(["stop", finished.job_id]) == 4
    assert "✗ processes on a cannot be ended" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_stopping_a_job_that_is_over_prints_how_it_ended(
    finished: JobDirectory, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    assert main(["stop", finished.job_id, "--output", output]) == 0
    printed = capsys.readouterr().out
    document = json.loads(printed)
    assert (document if output == "json" else document["data"])["exit_code"] == 103
    assert printed.isascii()
    assert main(["stop", finished.job_id]) == 0
    assert "step 7 · loss 1.5000" in capsys.readouterr().out


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_that_moves_no_cursor_gets_no_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    event = Event(1, 100.0, EventKind.PROGRESS, "1 of 2 nodes ready", data={"ready_nodes": 1, "nodes": 2})
    for term, has_escapes in (("xterm", True), ("dumb", False)):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", term)
        Printer("human").event(event)
        assert ("\x1b" in terminal.getvalue() or "\r" in terminal.getvalue()) == has_escapes
        assert "1 of 2 nodes ready" in terminal.getvalue()


def test_status_says_whose_numbers_it_shows(finished: JobDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    finished.metrics.write_text(
        '{"rank": 0, "step": 7, "loss": 1.5, "extra": {"steps_per_s": 3.5}}\n{"rank": 1, "step": 9, "loss": 1.4}\n'
    )
    assert main(["status", finished.job_id]) == 103
    assert "  rank 0: step 7  loss 1.5  steps/s 3.5\n" in capsys.readouterr().out


def test_log_lines_are_one_document_or_a_line_each(finished: JobDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", finished.job_id, "--output", "json", "-n", "2"]) == 0
    printed = capsys.readouterr().out
    assert [row["line"] for row in json.loads(printed)] == ["two 二", "three"]
    assert printed.isascii()
    assert main(["logs", finished.job_id, "--output", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[-1] == {"node": "a", "rank": 0, "stream": "out", "line": "three"}
    assert len(rows) == 3


def test_a_last_line_without_its_end_is_printed_when_the_job_is_over(
    finished: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    (finished.logs(0, "a") / "0.err").write_text("half")
    assert main(["logs", finished.job_id, "--stderr", "--rank", "0"]) == 0
    assert capsys.readouterr().out == "half\n"


def test_logs_are_shown_of_an_attempt_since_a_time_and_only_their_end(
    finished: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    log = finished.logs(0, "a") / "0.err"
    log.write_text("2026-01-01 10:00:00 old\n2026-01-02 10:00:00 new\nwithout a time\n")
    assert main(["logs", finished.job_id, "--stderr", "--rank", "0", "--since", "2026-01-02", "--attempt", "0"]) == 0
    assert capsys.readouterr().out == "2026-01-02 10:00:00 new\nwithout a time\n"
    assert main(["logs", finished.job_id, "-f", "--stderr", "--rank", "0", "--since", "2026-01-02", "--tail", "1"]) == 0
    assert capsys.readouterr().out == "without a time\n"


def test_a_file_without_times_is_shown_whole_and_that_is_said_once(
    finished: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    (finished.logs(0, "a") / "0.err").write_text("2026-01-01 10:00:00 old\n")
    assert main(["logs", finished.job_id, "--since", "10m"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 3
    assert said.err == "a: 0.out has no times: shown whole\n"
    assert main(["logs", finished.job_id, "--since", "10m", "--stderr"]) == 0
    assert capsys.readouterr().err == ""


def test_logs_without_a_job_are_those_of_the_one_that_runs(
    finished: JobDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(JobDirectory, "has_controller", lambda self: self.job_id.startswith("runs"))
    running = jobs.create("runs-a")
    EventLog(running.events).add(EventKind.JOB_STATE, "", data={"state": "RUNNING"})
    EventLog(jobs.create("refused").events).add(EventKind.JOB_STATE, "", data={"state": "FAILED"})
    assert main(["logs"]) == 0
    assert capsys.readouterr().err == f"job {running.job_id} has no logs\n"
    EventLog(jobs.create("runs-b").events).add(EventKind.JOB_STATE, "", data={"state": "RUNNING"})
    assert main(["logs"]) == 2
    assert "dttui logs JOB" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rank", "9"], ("has no rank 9", "a [0]")),
        (["--node", "b"], ("has no node b", "Its nodes: a")),
        (["--attempt", "1"], ("has no attempt 1", "Its last one is 0.")),
        (["--since", "soon"], ('"soon" is no time', "Write it as in 10m")),
    ],
)
def test_logs_of_what_is_not_there_are_refused_with_what_there_is(
    finished: JobDirectory, capsys: pytest.CaptureFixture[str], arguments: list[str], words: tuple[str, ...]
) -> None:
    assert main(["logs", finished.job_id, *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert all(word in said.err for word in words)


def test_a_failure_is_told_with_what_to_try_and_where_things_are(
    finished: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = jobs.create("broken")
    directory.plan.write_text(plan_for("a").model_dump_json())
    log = EventLog(directory.events)
    log.add(EventKind.NODE_STATE, "", node="a", data={"state": "prepared", "checkpoints": "/ckpt"})
    log.add(EventKind.JOB_STATE, "the rank runs", data={"state": "RUNNING"})
    log.add(EventKind.RANK_FAILED, "rank 0 on a exited with code 1", node="a", rank=0, data=NCCL_ERROR)
    log.add(EventKind.JOB_STATE, "rank 0", data={"state": "FAILED"})
    log.add(EventKind.OUTCOME, "rank 0", data={"state": "FAILED", "exit_code": 100})
    assert main(["status", directory.job_id]) == 100
    told = capsys.readouterr().out
    assert "Cause: NCCL failed: Connect to 10.0.0.2<4711> failed\n" in told
    assert "What to try:\n  → Set NCCL_DEBUG=INFO" in told
    assert f"logs: {directory.path}\ncheckpoints: a:/ckpt\n" in told
    assert main(["status", directory.job_id, "--output", "json"]) == 100
    document = json.loads(capsys.readouterr().out)
    assert document["checkpoints"] == {"a": "/ckpt"}
    assert document["cause"] == "nccl-error"
    assert len(document["advice"]) == 2


def test_where_nothing_runs_json_is_an_empty_list_and_jsonl_is_empty(
    finished: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ps", "--output", "jsonl"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["ps", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_jobs_stand_in_columns_under_a_header_on_a_terminal_and_behind_tabs_in_a_pipe(
    finished: JobDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_catalogues()
    other = jobs.create("a-much-longer-name-of-a-job")
    plan = plan_for("a", "b")
    other.plan.write_text(plan.model_dump_json())
    EventLog(other.events).add(EventKind.JOB_STATE, "训练任务已完成，" * 20, data={"state": "SUCCEEDED"})
    assert main(["ps", "--all"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert {row[0]: row[1] for row in rows} == {finished.job_id: "CANCELLED", other.job_id: "SUCCEEDED"}
    assert {len(row) for row in rows} == {7}
    assert rows[0][6] == "训练任务已完成，" * 20
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    for language, header in (("en", ["JOB", "STATE", "STARTED"]), ("zh", ["任务", "状态", "开始时间"])):
        assert main(["--lang", language, "ps", "--all"]) == 0
        head, first, second = capsys.readouterr().out.splitlines()
        assert head.split()[:3] == header
        assert all(text_width(line) <= 100 for line in (head, first, second))
        assert first.endswith("…")
        starts = [text_width(re.split(r"\d{4}-\d\d-\d\d ", line)[0]) for line in (first, second)]
        assert starts == [text_width(head[: head.index(header[2])])] * 2


def test_states_and_measures_are_told_in_the_person_s_language(
    finished: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    compile_catalogues()
    assert main(["--lang", "zh", "status", finished.job_id]) == 103
    told = capsys.readouterr().out
    assert "已取消" in told
    assert "损失 1.5" in told
    assert "CANCELLED" not in told
    assert "ended" not in told
    assert main(["--lang", "zh", "status", finished.job_id, "--output", "json"]) == 103
    assert json.loads(capsys.readouterr().out)["state"] == "CANCELLED"


def test_a_state_that_only_another_version_knows_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer("human")
    printer.event(Event(0, 0.0, EventKind.JOB_STATE, "away", 0, None, None, {"state": "MIGRATING"}))
    printer.event(Event(1, 0.0, EventKind.NODE_STATE, "", 0, "a", None, {"state": "draining"}))
    printer.event(Event(2, 0.0, EventKind.NODE_STATE, "", 0, "a", None, {"state": ["odd"]}))
    told = capsys.readouterr().err.splitlines()
    assert [line[10:] for line in told] == ["MIGRATING  away", "  a: draining", "  a: ['odd']"]


def test_an_event_is_one_line_whatever_its_message(capsys: pytest.CaptureFixture[str]) -> None:
    Printer("human").event(Event(0, 0.0, EventKind.JOB_STATE, REASON, 0, None, None, {"state": "CANCELLED"}))
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "stopped by 张三 ⏎ and more" in told


def test_what_forbids_a_launch_is_said_once_and_in_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    directory = jobs.create("full")
    directory.plan.write_text(plan_for("a").model_dump_json())
    log, reason = EventLog(directory.events), "a: 12 MiB free at /var/tmp: the agent keeps logs there"
    finding = {"code": "disk-low", "severity": "error", "hint": "Free some room there."}
    log.add(EventKind.FINDING, reason, attempt=0, data=finding)
    log.add(EventKind.JOB_STATE, f"{reason}. Free some room there.", data={"state": "FAILED"})
    log.add(EventKind.OUTCOME, f"{reason}. Free some room there.", data={"state": "FAILED", "exit_code": 3})
    follower, printer = JobFollower(directory), Printer("human")
    for event in follower.poll():
        printer.event(event)
    printer.summary(follower.view, directory)
    out, err = capsys.readouterr()
    assert (out.count(reason), err.count(reason)) == (1, 1)
    assert "FAILED\n" in err
    assert "What to try:\n  → Free some room there.\n" in err


def test_reports_are_shown_between_the_events_that_they_came_between_and_the_outcome_last() -> None:
    def event(time: float, kind: EventKind) -> Event:
        return Event(-1, time, kind, "")

    state, report = EventKind.JOB_STATE, EventKind.METRIC
    read = [event(1, state), event(5, state), event(4, state), event(6, EventKind.OUTCOME)]
    read += [event(time, report) for time in (0, 2, 9)]
    assert [(item.time, item.kind) for item in in_order(read)] == [
        (0, report), (1, state), (2, report), (5, state), (4, state), (9, report), (6, EventKind.OUTCOME)
    ]  # fmt: skip


def test_a_warning_of_the_preflight_tells_its_place_in_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"code": "cross-zone", "severity": "warning", "file": "job.yaml", "line": 3, "column": 7}
    Printer("human").event(Event(0, 0.0, EventKind.FINDING, "slow", 0, None, None, data))
    assert capsys.readouterr().err.endswith("⚠ cross-zone job.yaml:3:7: slow\n")


def finding_event(node: str, text: str, hint: str, severity: str = "warning") -> Event:
    data = {"code": "agent-version", "severity": severity, "subject": node, "hint": msg(hint, host=node)}
    message = msg("{host}: {reason}", host=node, reason=text)
    told = {**message.recipe, "data": recipes(data)}
    return Event(0, 0.0, EventKind.FINDING, message, 0, data=data, told=told)


def test_what_is_alike_on_several_nodes_is_told_once_and_as_lines_of_json_for_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nodes = [f"gpu{number}" for number in range(1, 7)]
    events = [finding_event(node, "the agent is old", "Upgrade it: dttui agents deploy {host}") for node in nodes]
    events.insert(3, finding_event("gpu9", "something else", ""))
    Printer("human").events(events)
    told = capsys.readouterr().err.splitlines()
    assert [line.partition("  ")[2] for line in told] == [
        "⚠ agent-version: on 6 nodes (gpu1, gpu2, gpu3, gpu4 and 2 more): the agent is old "
        "→ Upgrade it: dttui agents deploy gpu1 gpu2 gpu3 gpu4 gpu5 gpu6",
        "⚠ agent-version: gpu9: something else",
    ]
    Printer("jsonl").events(events)
    assert len(capsys.readouterr().out.splitlines()) == 7


def test_an_error_told_of_several_nodes_at_once_is_not_told_in_full_again(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer("human")
    printer.events([finding_event(node, "there is no /data", "", "error") for node in ("gpu1", "gpu2")])
    message = "gpu1: there is no /data (and 1 more error)"
    printer.event(Event(0, 0.0, EventKind.JOB_STATE, message, 0, data={"state": "FAILED"}))
    assert capsys.readouterr().err.splitlines()[-1].endswith("FAILED")
