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


def test_a_last_line_without_its_end_is_printed_when_the_job_is_over(
    finished: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    (finished.logs(0, "a") / "0.err").write_text("half")
    assert main(["logs", finished.job_id, "--stderr", "--rank", "0"]) == 0
    assert capsys.readouterr().out == "half\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--rank", "9"], ("has no rank 9", "a [0]")), (["--node", "b"], ("has no node b", "Its nodes: a"))],
)
def test_logs_of_a_rank_or_node_that_is_not_there_are_refused_with_those_there_are(
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
    log = EventLog(directory)
    log.add(EventKind.NODE_STATE, "", node="a", data={"state": "prepared", "checkpoints": "/ckpt"})
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


def test_a_warning_of_the_preflight_tells_its_place_in_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"code": "cross-zone", "severity": "warning", "file": "job.yaml", "line": 3, "column": 7}
    Printer("human").event(Event(0, 0.0, EventKind.FINDING, "slow", 0, None, None, data))
    assert capsys.readouterr().err.endswith("⚠ cross-zone job.yaml:3:7: slow\n")
