"""What `history` and `events` print of jobs, and how they choose among them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.events import EventKind, JobState

from dttui import jobs
from dttui.cli import main
from dttui.i18n import set_language
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from tests.tui.catalogue import compile_catalogues
from tests.unit.jobs.test_follow import plan_for


@pytest.fixture(autouse=True)
def in_english() -> Iterator[None]:
    set_language("en")
    yield
    set_language("en")


def over(name: str, state: JobState, *, cause: str | None = None, attempt: int = 0, at: float = 0.0) -> JobDirectory:
    """Return the directory of a job that is over."""
    directory = jobs.create(name)
    directory.plan.write_text(plan_for("a").model_copy(update={"job_name": name}).model_dump_json(indent=2))
    log = EventLog(directory.events)
    when = {"time": at} if at else {}
    log.add(EventKind.JOB_STATE, "checking 1 host", attempt=0, data={"state": "PREFLIGHT"}, **when)
    log.add(EventKind.FINDING, "it is slow", attempt=0, data={"code": "slow", "severity": "warning", "hint": "Wait."})
    for number in range(1, attempt + 1):
        log.add(EventKind.JOB_STATE, "again", attempt=number, data={"state": "RESTARTING"})
    log.add(EventKind.NODE_STATE, "reached", attempt=attempt, node="a", data={"state": "connected"})
    outcome = {"attempt": attempt, "state": state.value, "exit_code": 100}
    data: dict[str, Any] = {"state": state.value, "exit_code": 100, "attempt_outcome": outcome}
    if cause is not None:
        data["first_failure"] = {"node": "a", "rank": 0, "cause": cause, "time": 1.0, "is_shared": False}
    log.add(EventKind.JOB_STATE, f"{name} is over", data=data)
    log.add(EventKind.OUTCOME, f"{name} is over", data={"state": state.value, "exit_code": 100})
    return directory


@pytest.fixture
def three() -> list[JobDirectory]:
    return [
        over("gpt-small", JobState.SUCCEEDED, at=1_700_000_000.0),
        over("gpt-large", JobState.FAILED, cause="cuda-oom", attempt=2),
        over("resnet", JobState.CANCELLED),
    ]


def names(capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    assert main(["history", "--output", "jsonl", *options]) == 0
    return sorted(json.loads(line)["name"] for line in capsys.readouterr().out.splitlines())


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ((), ["gpt-large", "gpt-small", "resnet"]),
        (("--state", "failed"), ["gpt-large"]),
        (("--state", "FAILED, cancelled"), ["gpt-large", "resnet"]),
        (("--name", "gpt-*"), ["gpt-large", "gpt-small"]),
        (("--name", "gpt"), []),
        (("--cause", "cuda-oom"), ["gpt-large"]),
        (("--since", "1h"), ["gpt-large", "resnet"]),
        (("--since", "2023-11-14T00:00Z", "--state", "succeeded"), ["gpt-small"]),
    ],
)
def test_jobs_are_chosen_by_time_state_name_and_cause(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], wanted: list[str]
) -> None:
    assert names(capsys, *options) == wanted


@pytest.mark.usefixtures("three")
def test_a_job_that_is_not_over_is_no_history(capsys: pytest.CaptureFixture[str]) -> None:
    EventLog(jobs.create("new").events).add(EventKind.JOB_STATE, "", data={"state": "RUNNING"})
    assert "new" not in names(capsys)


def test_a_line_tells_the_cause_and_how_many_attempts_there_were(
    capsys: pytest.CaptureFixture[str], three: list[JobDirectory]
) -> None:
    assert main(["history"]) == 0
    rows = {line.split("\t")[0]: line.split("\t") for line in capsys.readouterr().out.splitlines()}
    found = rows[three[1].job_id]
    assert (found[1], found[2], found[5], found[-1]) == ("FAILED", "cuda-oom", "3", "gpt-large is over")
    assert (rows[three[0].job_id][2], rows[three[0].job_id][5]) == ("–", "1")


def test_jobs_of_the_version_before_have_their_cause(capsys: pytest.CaptureFixture[str]) -> None:
    kept = Path(__file__).parents[1] / "jobs" / "written_before"
    for path in kept.iterdir():
        if path.is_dir():
            assert jobs.summarize(JobDirectory(path)).attempts == 1
    assert {jobs.summarize(JobDirectory(path)).cause for path in kept.glob("bad-*")} != {None}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("history", "--state", "FAILD"), 'there is no "FAILD"; did you mean "FAILED"?'),
        (("history", "--state", "RUNNING"), "there are SUCCEEDED, FAILED, CANCELLED"),
        (("events", "--kind", "findings"), 'did you mean "finding"?'),
        (("history", "--since", "soon"), "--since"),
    ],
)
def test_a_word_that_is_none_is_refused_with_the_nearest(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    try:
        code = main(list(words))
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == 2
    assert told in capsys.readouterr().err


def test_events_are_printed_with_their_dates_and_attempts(
    capsys: pytest.CaptureFixture[str], three: list[JobDirectory]
) -> None:
    assert main(["events", three[1].job_id]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("── 20")
    assert [line for line in lines if line.startswith("── a")] == ["── attempt 1", "── attempt 2"]
    assert "⚠ slow: it is slow → Wait." in lines[2]
    assert lines[-1].endswith("FAILED  gpt-large is over")


def test_events_are_chosen_by_kind_node_and_time(capsys: pytest.CaptureFixture[str], three: list[JobDirectory]) -> None:
    def kinds(*options: str) -> list[str]:
        assert main(["events", three[0].job_id, "--output", "jsonl", *options]) == 0
        return [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()]

    assert kinds() == ["job_state", "finding", "node_state", "job_state", "outcome"]
    assert kinds("--kind", "finding,OUTCOME") == ["finding", "outcome"]
    assert kinds("--node", "a") == ["node_state"]
    assert kinds("--since", "2033-01-01") == []
    assert main(["events", three[0].job_id, "--node", "b"]) == 2
    assert "There are events of a" in capsys.readouterr().err


def test_events_drive_no_terminal_and_are_told_in_the_readers_language(capsys: pytest.CaptureFixture[str]) -> None:
    compile_catalogues()
    directory = over("x\x1b[31m", JobState.FAILED)
    assert main(["events", directory.job_id, "--lang", "zh"]) == 0
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert "失败" in told
