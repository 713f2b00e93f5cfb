"""What is told of an elastic job: what it lost and went on without, and that old lines of launchers explain no end."""

from __future__ import annotations

import json
import time

import pytest
from dtagent.protocol.events import Event, EventKind, JobState
from dtagent.protocol.jobs import ProcessExit, RankFailure
from dtagent.protocol.rpc import to_wire

from dttui import jobs
from dttui.cli import main
from dttui.cli.printing import Printer
from dttui.diagnosis.diagnose import diagnose
from dttui.diagnosis.diagnosis_data import document
from dttui.diagnosis.models import LogLine
from dttui.diagnosis.report import sections, short_sections
from dttui.diagnosis.rounds import Rounds
from dttui.frameworks.bundle import PlannedProcess
from dttui.jobs import JobDirectory
from dttui.jobs.view import NODE_OUT
from tests.unit.diagnosis.test_diagnosis import evidence, failed, node, text_of
from tests.unit.diagnosis.test_evidence import read
from tests.unit.engine.test_elastic import Attempt
from tests.unit.jobs.test_follow import plan_for

pytestmark = pytest.mark.usefixtures("english")

BEGIN = time.mktime((2026, 11, 21, 21, 36, 0, 0, 0, -1))
LOST, AGAIN, END = BEGIN + 115, BEGIN + 125, BEGIN + 173
OUT = "b is out: the launcher on b was ended by signal SIGKILL. The job goes on with 2 of 3 nodes"
STALE = "E1121 21:37:55.123000 42 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 143)"


@pytest.fixture
def directory() -> JobDirectory:
    """A job that lost b at 21:37:55 and its master at 21:38:53."""
    made = jobs.create("elastic")
    made.plan.write_text(plan_for("a", "b", "c").model_dump_json())
    made.logs(0, "a").mkdir(parents=True)
    (made.logs(0, "a") / "launcher.err").write_text(f"{STALE}\n")
    tell(made, BEGIN, EventKind.JOB_STATE, "", attempt=0, data={"state": "RUNNING"})
    number(made, BEGIN + 5)
    tell(made, LOST, EventKind.FINDING, OUT, attempt=0, data={"code": NODE_OUT, "subject": "b", "severity": "warning"})
    number(made, AGAIN)
    return made


def tell(directory: JobDirectory, at: float, kind: EventKind, message: str, **fields: object) -> None:
    event = Event(len(directory.read_events()), at, kind, message, **fields)  # type: ignore[arg-type]  # fields of it
    with directory.events.open("a") as stream:
        stream.write(json.dumps(to_wire(event)) + "\n")


def number(directory: JobDirectory, at: float) -> None:
    tell(directory, at, EventKind.RANKS, "", attempt=0, node="a", data={"ranks": [0], "world_size": 2, "restarts": 1})


def end(directory: JobDirectory) -> None:
    reason = "the launcher on a was ended by signal SIGKILL; the rendezvous was on a, and the job ends with it"
    for host, at, more in (("a", END, {}), ("b", LOST, {"survived": True})):
        message = f"the launcher on {host} was ended by signal SIGKILL"
        data = {"time": at, "signal": 9, "tail": [], **more}
        tell(directory, END + 1, EventKind.RANK_FAILED, message, attempt=0, node=host, data=data)
    tell(directory, END + 1, EventKind.JOB_STATE, reason, data={"state": "FAILED"})
    tell(directory, END + 1, EventKind.OUTCOME, reason, data={"state": "FAILED", "exit_code": 100})


@pytest.mark.parametrize("command", ["diagnose", "status"])
@pytest.mark.parametrize(
    ("language", "before", "after"),
    [
        ("en", "Lost before it, and the job went on without:", "Failed after it"),
        ("zh", "在此之前丢失、训练任务在没有它的情况下继续运行：", "随后失败的"),
    ],
)
def test_a_node_that_was_lost_before_the_end_is_told_as_lost_before(
    directory: JobDirectory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    language: str,
    before: str,
    after: str,
) -> None:
    end(directory)
    monkeypatch.setenv("LANGUAGE", language)
    main([command, directory.job_id])
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert "21:37:55  the launcher on b was ended by signal SIGKILL" in lines[lines.index(before) + 1]
    assert after not in said


def test_the_short_form_and_the_data_say_so_too_and_the_end_does_not_print_it_as_new(
    directory: JobDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    end(directory)
    found = diagnose(read(directory))
    assert "Lost before it, and the job went on without" in [part.heading for part in short_sections(found)]
    data = document(found)
    assert [item["node"] for item in data["lost_before"]] == ["b"]
    assert data["failed_after"] == []
    Printer("human").events(directory.read_events(EventKind.RANK_FAILED))
    said = capsys.readouterr().err
    assert "the launcher on a" in said
    assert "the launcher on b" not in said


def test_what_was_lost_later_than_the_first_failure_failed_after_it() -> None:
    found = diagnose(evidence(failed(0, "ValueError: bad"), failed(None, time=101.0, is_survived=True)))
    assert [item.failure.node for item in found.failed_after] == ["b"]
    assert found.lost_before == ()


def test_a_rank_that_was_lost_with_its_node_is_not_taken_for_the_one_that_has_its_number_since() -> None:
    gone = failed(2, "ValueError: bad", time=50.0, is_survived=True)
    found = diagnose(evidence(failed(0, "ValueError: bad"), gone))
    assert found.same == 1
    assert {other.rank: other.doing.value for other in found.others}[2] == "stopped"


def test_where_only_what_was_survived_failed_that_is_not_why_the_job_did() -> None:
    found = diagnose(evidence(failed(2, "ValueError: bad", is_survived=True), reason="a could not be followed"))
    assert (found.first, found.headline) == (None, "a could not be followed")
    assert "Lost, and the job went on without" in [part.heading for part in sections(found)]


@pytest.mark.parametrize("state", ["failed", "lost"])
def test_a_running_job_says_that_it_goes_on_without_a_node_and_why_that_was_lost(state: str) -> None:
    nodes = (node("a", 0, 1, state="running"), node("b", state=state))
    text = text_of(diagnose(evidence(state=JobState.RUNNING, exit_code=None, nodes=nodes, nodes_out={"b": OUT})))
    assert text.splitlines()[:2] == ["The job goes on without b (RUNNING).", OUT]
    assert "Nothing has failed" not in text


def test_a_cancelled_job_that_had_lost_a_node_does_not_say_that_nothing_has_failed() -> None:
    nodes = (node("a", 0, 1, state="stopped"), node("b", state="failed"))
    text = text_of(diagnose(evidence(state=JobState.CANCELLED, exit_code=103, nodes=nodes, nodes_out={"b": OUT})))
    assert text.splitlines()[:2] == [OUT, "The job was cancelled."]
    assert "Nothing has failed" not in text


def test_lines_of_a_launcher_from_before_the_last_round_are_no_evidence_of_a_later_end(directory: JobDirectory) -> None:
    end(directory)
    found = read(directory)
    assert found.failures[0].lines == ()
    assert found.nodes[0].launcher == ()
    assert "exitcode: 143" not in text_of(diagnose(found))


def test_lines_of_the_last_round_are_kept_and_those_without_a_time_with_what_follows_them(
    directory: JobDirectory,
) -> None:
    own = ["W1121 21:38:52.000000 42 x] closing", "torch.distributed.DistNetworkError: gone"]
    path = directory.logs(0, "a") / "launcher.err"
    path.write_text("\n".join(["a warning", STALE, "RuntimeError: now", *own, ""]))
    end(directory)
    lines = read(directory).failures[0].lines
    assert [(line.line, line.text) for line in lines] == [(3, "RuntimeError: now"), (4, own[0]), (5, own[1])]


@pytest.mark.parametrize(
    ("rounds", "until", "offset_s"),
    [
        ((BEGIN + 5,), END, 0.0),
        ((BEGIN + 5, AGAIN), LOST, 0.0),
        ((BEGIN + 5, AGAIN), END, -100.0),
        ((BEGIN + 5, AGAIN), END, 8 * 3600.0),
    ],
    ids=["never started again", "the end of an earlier round", "a clock that is late", "a clock of another zone"],
)
def test_lines_that_may_be_of_the_last_round_are_kept(rounds: tuple[float, ...], until: float, offset_s: float) -> None:
    line = LogLine("launcher.err", 1, STALE)
    assert Rounds(BEGIN, rounds, offset_s).last([line], until) == (line,)


@pytest.mark.parametrize("index", [0, 1], ids=["on the master", "elsewhere"])
@pytest.mark.parametrize(
    ("most", "words"),
    [
        (2, "torchrun has given up on {host}, where max_restarts (2) is used up; that closes the rendezvous for all"),
        (3, "torchrun has given up on {host}, which closes the rendezvous for all"),
    ],
    ids=["used up", "given up for something else"],
)
def test_the_end_says_that_max_restarts_is_used_up_where_it_is(most: int, words: str, index: int) -> None:
    attempt = Attempt(jobs.create("x"))
    launcher = PlannedProcess(name="launcher", argv=("torchrun", f"--max-restarts={most}"), env={}, cwd="/")
    node = attempt.nodes[index]
    node.planned = node.planned.model_copy(update={"processes": (launcher,)})
    attempt.all_run()
    attempt.say(index, node.ranks[0], restarts=2, exits=[ProcessExit("launcher", 5.0, exit_code=1)])
    attempt.members.newly_out(())
    assert attempt.members.end == words.format(host=node.name)


def test_ranks_that_are_started_again_are_told_with_the_rank_that_had_failed_and_why() -> None:
    attempt = Attempt(jobs.create("x"))
    attempt.all_run()
    attempt.say(1, 2, failures=[RankFailure(2, 5.0, exit_code=3, error="SystemExit: 3")])
    attempt.members.learn()
    attempt.say(1, 2, restarts=1, port=4001)
    attempt.members.learn()
    told = [event.message for event in attempt.events(EventKind.RANKS)]
    why = "rank 2 on b exited with code 3"
    assert told[-1] == f"torchrun started the rank of b again: rank 2 of 3 now; before that {why}"
    assert attempt.events(EventKind.RANK_FAILED) == []
