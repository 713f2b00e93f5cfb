"""Whoever tells of a job that failed names the same node, rank and cause: recorded jobs, and what is told of each."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import EventKind, JobState, NodeStanding
from dtagent.protocol.jobs import Leftover, NodeState, NodeStatus, ProcessExit, RankFailure
from dtagent.protocol.rpc import to_wire
from dtagent.protocol.telemetry import HostSample

from dttui import jobs
from dttui.cli.printing import Printer
from dttui.diagnosis.diagnose import diagnose
from dttui.diagnosis.evidence import read_evidence
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.conclusion import Conclusion, Watched
from dttui.engine.failures import FoundFailure
from dttui.engine.given_up import EndedFor
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.watch import GangWatch
from dttui.errors import AgentGoneError
from dttui.i18n import msg, set_language
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.exit_codes import end_data
from dttui.jobs.following import JobFollower
from dttui.jobs.outcome import AttemptOutcome, failed
from dttui.planning.models import Plan
from dttui.spec.failure_causes import ALERT, LAUNCH, UNHEALTHY
from dttui.tui.why import why
from tests.integration.headless import dttui_here, result_of
from tests.unit.jobs.test_follow import plan_for

PEER = "RuntimeError: [/g/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.77.0.1]:29500"
MISSING = "ModuleNotFoundError: No module named 'flash_attn'"
NO_FILE = "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'"
USAGE = ("usage: train.py [-h] [--lr LR]", "train.py: error: unrecognized arguments: --lrr 3")
Who = tuple[str, int | None, str]
"""Node, rank, and code of the cause."""


class Recorded:
    """A job of two nodes, `a` with rank 0 and `b` with rank 1, as the watch of its attempt leaves it."""

    def __init__(self, *, runs: bool) -> None:
        self.plan: Plan = plan_for("a", "b")
        self.directory: JobDirectory = jobs.create("x")
        self.directory.plan.write_text(self.plan.model_dump_json())
        self.log = EventLog(self.directory.events)
        self.attempt = AttemptLog(self.log, 0)
        self.attempt.enter(JobState.RENDEZVOUS, "")
        if runs:
            self.attempt.enter(JobState.RUNNING, msg("all {count} ranks run", count=2))
        key = AttemptKey(self.directory.job_id, 0)
        nothing: Any = None  # Nothing is connected to.
        self.nodes = [
            NodeRun(nothing, planned, key, self.directory, nothing, nothing, lambda: None)
            for planned in self.plan.nodes
        ]
        for rank, node in enumerate(self.nodes):
            self.directory.logs(0, node.name).mkdir(parents=True)
            node.status = NodeStatus(key, rank, NodeState.RUNNING, ranks_started=[rank])
        self.watch = GangWatch(self.directory, self.attempt, self.nodes, asyncio.Event(), ())
        self.watched = Watched(self.nodes)

    def ends(self, rank: int, at: float = 100.0, *lines: str, reason: str = "a process failed", **how: Any) -> None:
        """Let a rank end so; `at` is by its own host's clock."""
        node = self.nodes[rank]
        assert node.status is not None
        oom_kills = how.pop("oom_kills", None)
        exit_code = how.pop("exit_code", None if "signal" in how else 1)
        failure = RankFailure(rank, at, exit_code, **how)
        ended = ProcessExit("launcher", at, exit_code, how.get("signal"), oom_kills=oom_kills)
        node.status = replace(node.status, state=NodeState.ENDED, reason=reason, failures=[failure], exits=[ended])
        (self.directory.logs(0, node.name) / f"{rank}.err").write_text("".join(f"{line}\n" for line in lines))

    def stopped(self, rank: int, at: float = 101.0) -> None:
        """Let a rank be ended by the gang's own stop."""
        node = self.nodes[rank]
        assert node.status is not None
        ended = ProcessExit("launcher", at, 143)
        node.status = replace(node.status, state=NodeState.ENDED, reason="stopped", exits=[ended])

    def given_up(self, rank: int) -> None:
        node = self.nodes[rank]
        node.is_lost, node.silent_since = True, 90.0
        reason = msg("could not be reached; what runs there is unknown")
        if node.agent_gone is not None:
            reason = msg("{why}; what runs there is unknown", why=node.agent_gone.message)
        self.attempt.note(node.name, NodeStanding.LOST, reason, agent_gone=node.agent_gone is not None)

    def samples(self, rank: int, *samples: HostSample) -> None:
        path = self.directory.samples(self.nodes[rank].name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(to_wire(sample)) + "\n" for sample in samples))

    def conclude(self) -> None:
        """Find out how it ended, and tell it as the controller does."""
        self.watch.report()
        self.attempt.flush()
        outcome = Conclusion(self.directory, self.attempt, self.watched, self.plan, (), self.tell).outcome()
        if not outcome.succeeded:
            self.tell_end(outcome)

    def tell(self, failure: FoundFailure) -> None:
        fields = {"node": failure.node, "rank": failure.rank, "data": failure.data}
        self.attempt.add(EventKind.RANK_FAILED, failure.message, **fields)

    def tell_end(self, outcome: AttemptOutcome) -> None:
        data = end_data(outcome)
        first = {"first_failure": outcome.first_failure.model_dump()} if outcome.first_failure is not None else {}
        self.log.add(EventKind.JOB_STATE, outcome.message, data={**data, **first})
        self.log.add(EventKind.OUTCOME, outcome.message, data=data)


def a_rank_fails(job: Recorded) -> None:
    job.ends(1, 100.0, error="ValueError: bad batch")
    job.ends(0, 100.2, error=PEER)


def a_signal(job: Recorded) -> None:
    job.ends(1, 100.0, signal=signal.SIGSEGV)
    job.ends(0, 100.1, error=PEER)


def killed_at_a_limit(job: Recorded) -> None:
    job.samples(1, HostSample(1, 99.0, memory_used_mib=2_000, memory_total_mib=10_000))
    job.ends(1, 100.0, signal=signal.SIGKILL, oom_kills=1)
    job.ends(0, 100.1, error=PEER)


def master_off(job: Recorded) -> None:
    job.ends(1, 100.0, PEER, error=PEER)
    job.given_up(0)


def lost_node(job: Recorded) -> None:
    job.stopped(0)
    job.given_up(1)


def never_started(job: Recorded) -> None:
    missing = {"b": {"has_come": False, "said": ""}}
    job.attempt.progress(msg("waiting for {hosts}", hosts="b"), missing=missing, waited_s=60.0, port=29500)
    late = msg("{hosts} did not join within {seconds} s", hosts="b", seconds=60)
    job.watched = replace(job.watched, ended_for=EndedFor("rendezvous-timeout", late))
    job.stopped(0)
    job.stopped(1)


def never_started_and_others_waited(job: Recorded) -> None:
    """The rank that waited has an error of its own to show for it when it is stopped."""
    never_started(job)
    job.ends(0, 100.0, reason="stopped", error="torch.distributed.DistStoreError: Timed out after 61 seconds waiting")


def an_unhealthy_host_ended_it(job: Recorded) -> None:
    what = msg("{command} exited with {code}", command="check", code=3)
    why = msg("{host} is unhealthy: {what}", host="b", what=what)
    job.attempt.tell_health("b", why, {"severity": "error", "what": what, "hint": "", "restarts": True})
    job.attempt.enter(JobState.STOPPING, why, cause=UNHEALTHY)
    job.watched = replace(job.watched, ended_for=EndedFor(UNHEALTHY, why, node="b"))
    job.stopped(0)
    job.ends(1, 101.0, error=PEER)


def an_alert_ended_it(job: Recorded) -> None:
    why = msg("{alert}: {value}, {where}", alert="loss > 10", value="12", where="rank 0 on b")
    job.attempt.enter(JobState.STOPPING, why, cause=ALERT)
    job.watched = replace(job.watched, ended_for=EndedFor(ALERT, why))
    job.stopped(0)
    job.ends(1, 101.0, error=PEER)


def launcher_gave_up(job: Recorded) -> None:
    """Before the job's own patience was at its end."""
    never_started(job)
    job.watched = Watched(job.nodes)
    gave_up = "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"
    job.ends(0, 100.0, "Traceback (most recent call last):", gave_up, error=gave_up)


def agent_gone(job: Recorded) -> None:
    job.nodes[1].agent_gone = AgentGoneError("b", "the agent's directory is gone")
    job.stopped(0)
    job.given_up(1)


def elastic_survived_one(job: Recorded) -> None:
    job.watched = Watched(job.nodes, survived={"b"}, over=msg("too few are left"))
    job.ends(1, 50.0, error="ValueError: the one it went on without")
    job.ends(0, 100.0, error="KeyError: 'loss'")


def launch_failed(job: Recorded) -> None:
    job.attempt.note("b", NodeStanding.FAILED, "b: there is no program torchrun")
    job.tell_end(failed("b: there is no program torchrun", cause=LAUNCH))


def stopped_on_request(job: Recorded) -> None:
    job.watched = Watched(job.nodes, is_cancelled=True)
    job.ends(0, 100.0, reason="stopped", exit_code=1)
    job.stopped(1)


def stopped_with_a_host_lost(job: Recorded) -> None:
    """The script of the other rank ends with 1 when it is asked to end."""
    job.watched = Watched(job.nodes, is_cancelled=True)
    job.ends(0, 100.0, reason="stopped", exit_code=1)
    job.given_up(1)


def stopped_and_stuck(job: Recorded) -> None:
    job.watched = Watched(job.nodes, is_cancelled=True)
    job.ends(0, 100.0, reason="stopped", exit_code=1)
    node = job.nodes[1]
    assert node.status is not None
    stuck = [Leftover(7, "python", "D")]
    node.status = replace(node.status, state=NodeState.UNKILLABLE, reason="stopped", leftovers=stuck)


def failed_and_another_is_stuck(job: Recorded) -> None:
    stopped_and_stuck(job)
    job.watched = Watched(job.nodes)
    job.ends(0, 100.0, error="ValueError: bad batch")


def two_in_one_second(job: Recorded) -> None:
    """Torch's own records have whole seconds: the victim's may be the earlier one."""
    job.ends(0, 100.0, error=PEER)
    job.ends(1, 100.0, error="ZeroDivisionError: division by zero")


def clocks_apart(job: Recorded) -> None:
    job.nodes[0].clock_offset_s = 1000.0
    job.ends(0, 1099.0, error="KeyError: 'first'")
    job.ends(1, 100.0, error="ValueError: second")


def supervisor_lost(job: Recorded) -> None:
    node = job.nodes[1]
    assert node.status is not None
    node.heard_at = 100.0
    node.status = replace(node.status, state=NodeState.LOST, reason="the supervisor on this host died")
    job.ends(0, 101.0, error=PEER)


def _both(*lines: str, **how: Any) -> Callable[[Recorded], None]:
    def record(job: Recorded) -> None:
        job.ends(0, 100.3, *lines, **how)
        job.ends(1, 100.1, *lines, **how)

    return record


@dataclass(frozen=True)
class Row:
    """A job that was recorded, and what everybody is to say of it."""

    record: Callable[[Recorded], None]
    first: Who | None
    headline: str
    """In the first words of all."""
    cause: str | None = None
    """Code, where nothing failed first."""
    never: tuple[str, ...] = field(default=())
    """What no headline says: who is not to blame."""
    runs: bool = True
    """Whether all ranks ran."""


ROWS = {
    "plain failure": Row(a_rank_fails, ("b", 1, "exception"), "rank 1 on b", never=(" on a",)),
    "signal": Row(a_signal, ("b", 1, "segfault"), "rank 1 on b was ended by signal SIGSEGV", never=(" on a",)),
    "memory": Row(killed_at_a_limit, ("b", 1, "memory-limit"), "rank 1 on b", never=(" on a",)),
    "master off": Row(master_off, ("a", None, "node-lost"), "a could not be reached", never=(PEER, " on b")),
    "lost node": Row(lost_node, ("b", None, "node-lost"), "b could not be reached", never=("a could",)),
    "never started": Row(never_started, None, "b did not join within 60 s", "rendezvous-timeout", runs=False),
    "never started, waited for": Row(
        never_started_and_others_waited, None, "b did not join within 60 s", "rendezvous-timeout", runs=False
    ),
    "an unhealthy host": Row(an_unhealthy_host_ended_it, None, "b is unhealthy: check", "unhealthy", never=("rank 1",)),
    "an alert": Row(an_alert_ended_it, None, "loss > 10", "alert", never=("rank 1",)),
    "launcher gave up": Row(
        launcher_gave_up, None, "a joined the rendezvous at", "rendezvous-timeout", ("rank 0",), runs=False
    ),
    "agent gone": Row(agent_gone, ("b", None, "agent-gone"), "the agent of b is gone"),
    "elastic": Row(elastic_survived_one, ("a", 0, "exception"), "rank 0 on a", never=(" on b",)),
    "launch": Row(launch_failed, None, "b: there is no program torchrun", "launch"),
    "stopped": Row(stopped_on_request, None, "stopped on request"),
    "stopped, one lost": Row(
        stopped_with_a_host_lost, ("b", None, "node-lost"), "b could not be reached", never=("rank 0",)
    ),
    "stopped, one stuck": Row(stopped_and_stuck, ("b", None, "unkillable"), "b: these processes cannot be ended: 7"),
    "failed, one stuck": Row(failed_and_another_is_stuck, ("a", 0, "exception"), "rank 0 on a exited with code 1"),
    "in one second": Row(two_in_one_second, ("b", 1, "exception"), "rank 1 on b", never=(" on a",)),
    "clocks apart": Row(clocks_apart, ("a", 0, "exception"), "rank 0 on a", never=(" on b",)),
    "supervisor lost": Row(supervisor_lost, ("b", None, "supervisor-lost"), "b: the supervisor", never=(" on a",)),
    "module missing everywhere": Row(
        _both(error=MISSING), ("b", 1, "missing-module"), "on all 2 hosts alike: ", never=("rank 1 on b", "rank 0 on a")
    ),
    "argument wrong everywhere": Row(
        _both(*USAGE, exit_code=2), ("b", 1, "arguments"), "on all 2 hosts alike: ", never=("rank 1 on b",)
    ),
    "path wrong everywhere": Row(
        _both(error=NO_FILE), ("b", 1, "missing-file"), "on all 2 hosts alike: ", never=("rank 1 on b",)
    ),
}


@pytest.fixture(params=ROWS)
def row(request: pytest.FixtureRequest) -> Row:
    found: Row = ROWS[request.param]
    return found


@pytest.fixture(params=["en", "zh"])
def language(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("LANGUAGE", request.param)
    yield request.param
    set_language("en")


def recorded(row: Row) -> JobDirectory:
    """Return the directory of such a job; its controller spoke English, whoever reads it."""
    set_language("en")
    job = Recorded(runs=row.runs)
    row.record(job)
    if not job.directory.is_over():
        job.conclude()
    return job.directory


def test_all_that_is_told_of_a_job_names_the_same_node_rank_and_cause(row: Row, language: str) -> None:
    directory = recorded(row)
    name = directory.job_id
    diagnosed = result_of(dttui_here("diagnose", name, "--output", "json"))
    first, cause = diagnosed["first_failure"], diagnosed["cause"] or {}
    assert (first and (first["node"], first["rank"], cause["code"])) == row.first
    code = row.first[2] if row.first else row.cause
    status = result_of(dttui_here("status", name, "--output", "json"))
    assert (cause.get("code"), status["cause"]) == (code, code)
    ended = [event for event in directory.read_events() if event.kind is EventKind.JOB_STATE][-1]
    recorded_first = ended.data.get("first_failure")
    assert (recorded_first and tuple(recorded_first[key] for key in ("node", "rank", "cause"))) == row.first


def test_every_headline_says_who_failed_first_and_nobody_else(
    row: Row, language: str, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = recorded(row)
    name = directory.job_id
    set_language(language)
    follower = JobFollower(directory)
    follower.catch_up()
    Printer("human").summary(follower.view, directory)
    applied = capsys.readouterr()
    found = diagnose(read_evidence(directory, follower.view))
    events = [event for event in directory.read_events() if event.kind in (EventKind.JOB_STATE, EventKind.OUTCOME)]
    page = str(why(found))
    set_language("en")
    diagnosed = dttui_here("diagnose", name).stdout
    headlines = {
        "state": events[-2].message,
        "outcome": events[-1].message,
        "ps": next(line for line in dttui_here("ps", "--all").stdout.splitlines() if name in line),
        "status": dttui_here("status", name).stdout.splitlines()[0],
        "apply": applied.out.splitlines()[0],
        "apply, in short": (applied.err or applied.out).splitlines()[0],
        "diagnose": " ".join(diagnosed.splitlines()[1:3]),
        "why": " ".join(page.splitlines()[:2]),
    }
    said = row.headline if language == "en" else _in_chinese(row)
    for place, text in headlines.items():
        assert said in text or (row.first and row.first[2] in ("node-lost", "agent-gone") and row.first[0] in text), (
            place,
            headlines,
        )
        for other in row.never if language == "en" else ():
            assert other not in text, (place, headlines)


def _in_chinese(row: Row) -> str:
    """Return what is to be in a headline in Chinese: names stay, sentences do not."""
    if row.headline.startswith("on all"):
        return "全部 2 台主机都一样："
    if row.first is not None:
        return row.first[0] if row.first[1] is None else f"{row.first[0]} 上的 rank {row.first[1]}"
    return "b" if row.cause else "按要求停止"


def _unstarted(state: NodeState, *exits: ProcessExit) -> Callable[[Recorded], None]:
    """Return how a job is recorded whose node `b` never started its rank, however its own part ended."""

    def record(job: Recorded) -> None:
        node = job.nodes[1]
        assert node.status is not None
        node.status = replace(node.status, state=state, reason="stopped", ranks_started=[], exits=list(exits))
        job.ends(0, 100.0, error="KeyError: 'loss'")

    return record


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(never_started_and_others_waited, id="missed the rendezvous"),
        pytest.param(launch_failed, id="launch failed"),
        pytest.param(_unstarted(NodeState.PREPARED), id="prepared"),
        pytest.param(_unstarted(NodeState.DISCARDED), id="discarded"),
        pytest.param(_unstarted(NodeState.ENDED), id="stopped before it ran"),
        pytest.param(_unstarted(NodeState.ENDED, ProcessExit("launcher", 100.5, 0)), id="launcher ended with 0"),
        pytest.param(_unstarted(NodeState.ENDED, ProcessExit("launcher", 100.5, 143)), id="launcher was stopped"),
    ],
)
def test_a_rank_that_never_started_is_not_said_to_have_ended_with_0(
    record: Callable[[Recorded], None], language: str
) -> None:
    set_language("en")
    job = Recorded(runs=False)
    status = job.nodes[1].status
    assert status is not None
    job.nodes[1].status = replace(status, ranks_started=[])
    record(job)
    if not job.directory.is_over():
        job.conclude()
    name = job.directory.job_id
    ranks = {
        item["rank"]: item["doing"] for item in result_of(dttui_here("diagnose", name, "--output", "json"))["ranks"]
    }
    assert ranks.get(1) == "absent"
    told_of = dttui_here("diagnose", name).stdout + dttui_here("status", name).stdout
    assert ("had ended with 0" if language == "en" else "已以 0 退出") not in told_of
    assert ("never started" if language == "en" else "从未启动") in told_of
