"""What the commands print of jobs that are over, in each format and language."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from dtagent.protocol.events import Event, EventKind

from dttui.cli import main
from dttui.cli.printing import Printer
from dttui.i18n import set_language
from dttui.services import jobs
from dttui.services.jobs import EventLog, JobDirectory
from tests.tui.catalogue import compile_catalogues
from tests.unit.test_follow import plan_for

REASON = "stopped\x1b[31m by 张三\nand more"


@pytest.fixture
def finished() -> Iterator[JobDirectory]:
    directory = jobs.create("x")
    directory.plan.write_text(plan_for("a").model_dump_json())
    log = EventLog(directory)
    log.add(EventKind.NODE_STATE, "", node="a", data={"state": "ended"})
    log.add(EventKind.JOB_STATE, REASON, data={"state": "CANCELLED"})
    log.add(EventKind.OUTCOME, REASON, data={"state": "CANCELLED", "exit_code": 103})
    directory.metrics.write_text('{"rank": 0, "step": 7, "loss": 1.5}\n')
    logs = directory.logs(0, "a")
    logs.mkdir(parents=True)
    (logs / "0.out").write_text("one\ntwo 二\nthree\n")
    yield directory
    set_language("en")


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


def test_log_lines_are_one_document_or_a_line_each(finished: JobDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", finished.job_id, "--output", "json", "-n", "2"]) == 0
    printed = capsys.readouterr().out
    assert [row["line"] for row in json.loads(printed)] == ["two 二", "three"]
    assert printed.isascii()
    assert main(["logs", finished.job_id, "--output", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[-1] == {"node": "a", "rank": 0, "stream": "out", "line": "three"}
    assert len(rows) == 3


def test_where_nothing_runs_json_is_an_empty_list_and_jsonl_is_empty(
    finished: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ps", "--output", "jsonl"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["ps", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


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


def test_an_event_is_one_line_whatever_its_message(capsys: pytest.CaptureFixture[str]) -> None:
    Printer("human").event(Event(0, 0.0, EventKind.JOB_STATE, REASON, 0, None, None, {"state": "CANCELLED"}))
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "stopped by 张三 ⏎ and more" in told
