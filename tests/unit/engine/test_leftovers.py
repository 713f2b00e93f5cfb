"""Looking again at a host of a job that is over: what became of processes is one thing, what of their logs another."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable

import pytest
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import Event, EventKind
from dtagent.protocol.jobs import NodeState, NodeStatus
from dtagent.protocol.logs import FollowReply, LogChunk
from dtagent.protocol.rpc import ErrorCode, to_wire

from dttui import jobs
from dttui.cli import main
from dttui.engine import leftovers as module
from dttui.engine.leftovers import clean_up_after_job
from dttui.engine.nodes import node_run
from dttui.engine.nodes.node_warnings import log_rest
from dttui.errors import HostUnreachableError
from dttui.files import write_atomic
from dttui.i18n import msg, set_language
from dttui.inventory.models import Environment, Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.aftermath import MESSAGE_ALONE, OUTCOME, Aftermath
from dttui.jobs.event_log import EventLog
from dttui.jobs.left_to_do import lost_nodes, unfetched_nodes
from dttui.transport.base import Nobody
from tests.fake_transport import FakeHost, FakeTransport
from tests.unit.jobs.test_follow import plan_for
from tests.unit.rpc.test_agent_client import agent

CHUNKS = 30
"""Of a log, which takes longer to fetch than any deadline of a stop."""
REFUSAL = {"code": -32603, "message": "internal error"}


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> JobDirectory:
    """A job that is over and has lost a host; every wait is short."""
    for name, seconds in {"STOP_DEADLINE_S": 0.05, "LOOK_DEADLINE_S": 1.0, "LOOK_AT_LINK_S": 0.02}.items():
        monkeypatch.setattr(module, name, seconds)
    monkeypatch.setattr(node_run, "RECONNECT_S", 0.001)
    directory = jobs.create("lost")
    write_atomic(directory.plan, plan_for("gpu1").model_dump_json())
    EventLog(directory.events).add(EventKind.NODE_STATE, "", attempt=0, node="gpu1", data={"state": "lost"})
    return directory


def host(directory: JobDirectory, follow: Callable[[NodeStatus], object], *, ends: bool = True) -> FakeHost:
    """Return a host on which the job runs until it is told to end, or goes on where it does not end."""
    running, ended = (NodeStatus(AttemptKey(directory.job_id, 0), 0, NodeState(word)) for word in ("running", "ended"))
    after = ended if ends else running

    def answer(method: str) -> object:
        return to_wire(follow(after) if method == "follow" else after if method == "stop" else running)

    return FakeHost(agent(answer))


async def look(directory: JobDirectory, seen: FakeHost, *, forced: bool = False) -> Event:
    """Look at the job again; return what is told of the host."""
    inventory = Inventory(environments=(Environment(name="gpu1", host="gpu1"),))
    hurry = asyncio.Event()
    if forced:
        hurry.set()
    transport = FakeTransport({"gpu1": seen})
    looking = clean_up_after_job(directory, EventLog(directory.events), inventory, transport, Nobody(), forced=hurry)
    await asyncio.wait_for(looking, 20)
    return [event for event in directory.read_events() if event.kind is EventKind.NODE_STATE][-1]


def chunks(count: int) -> Callable[[NodeStatus], FollowReply]:
    """Return an answer to each `follow` with one more line of the log, of so many."""
    told = 0

    def follow(status: NodeStatus) -> FollowReply:
        nonlocal told
        told += 1
        if told > count:
            return FollowReply(status, "")
        return FollowReply(status, "", [LogChunk("0.out", 2 * told - 2, base64.b64encode(b"x\n").decode())], more=True)

    return follow


@pytest.mark.usefixtures("unhurried")
async def test_a_host_that_has_ended_is_not_lost_for_a_log_that_takes_long(directory: JobDirectory) -> None:
    told = await look(directory, host(directory, chunks(CHUNKS)))
    assert told.data["state"] == "stopped"
    assert (directory.logs(0, "gpu1") / "0.out").read_bytes() == CHUNKS * b"x\n"
    assert unfetched_nodes(directory.read_events()) == []


@pytest.mark.usefixtures("unhurried")
async def test_a_forced_look_waits_for_no_log_and_says_that_there_is_more(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_run, "HURRIED_DRAIN_S", -1.0)
    told = await look(directory, host(directory, chunks(1 << 30)), forced=True)
    assert told.data["state"] == "stopped"
    assert unfetched_nodes(directory.read_events()) == ["gpu1"]


@pytest.mark.usefixtures("unhurried")
async def test_a_host_that_has_ended_and_keeps_its_log_to_itself_is_not_lost(directory: JobDirectory) -> None:
    told = await look(directory, host(directory, lambda _status: REFUSAL))
    assert told.data["state"] == "stopped"
    assert unfetched_nodes(directory.read_events()) == ["gpu1"]
    (finding,) = (event for event in directory.read_events() if event.kind is EventKind.FINDING)
    assert finding.message == "the rest was not fetched: gpu1: internal error"


async def test_the_copy_of_a_host_that_has_no_records_any_more_says_that_there_may_have_been_more(
    directory: JobDirectory,
) -> None:
    copy = directory.logs(0, "gpu1") / "0.out"
    copy.parent.mkdir(parents=True)
    copy.write_text("step 1\n")
    gone = {"code": ErrorCode.NO_SUCH_ATTEMPT.value, "message": "no attempt 0 here"}
    discarded = to_wire(NodeStatus(AttemptKey(directory.job_id, 0), 0, NodeState.DISCARDED))
    told = await look(directory, FakeHost(agent(lambda method: discarded if method == "stop" else gone)))
    assert told.message == "looked again: nothing of this job is there"
    assert copy.read_text() == "step 1\n… if there was more of this log, the host has not kept it …\n"


async def test_a_lost_host_that_cannot_be_reached_again_stays_lost_and_is_looked_at_another_time(
    directory: JobDirectory,
) -> None:
    told = await look(directory, FakeHost(error=HostUnreachableError("gpu1", "no route to host")))
    assert (told.data["state"], told.message) == ("lost", "looked again: no route to host")
    assert lost_nodes(directory.read_events()) == ["gpu1"]


@pytest.mark.usefixtures("unhurried")
async def test_a_host_that_does_not_end_stays_lost(directory: JobDirectory) -> None:
    told = await look(directory, host(directory, chunks(0), ends=False))
    assert (told.data["state"], told.message) == ("lost", "it has not ended; what runs there is unknown")
    assert lost_nodes(directory.read_events()) == ["gpu1"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_once_a_lost_host_is_known_to_be_clean_nobody_says_any_more_that_it_is_unknown(
    directory: JobDirectory, capsys: pytest.CaptureFixture[str], language: str
) -> None:
    unknown = msg("What runs there is unknown; `dttui stop {job}` asks again, and fetches the logs.", job="lost")
    alone = msg("stopped on request, but {what}", what=msg("{hosts} could not be reached", hosts="gpu1"))
    outcome = {"nodes": {"gpu1": {"end": "lost"}}}
    data = {"state": "FAILED", "exit_code": 100, OUTCOME: outcome, MESSAGE_ALONE: alone}
    log = EventLog(directory.events)
    told = msg("{message}. {hint}", message=alone, hint=unknown)
    log.add(EventKind.JOB_STATE, told, attempt=0, data=data)
    log.add(EventKind.OUTCOME, told, attempt=0, data=data)
    verbs = (["ps", "--all"], ["status", "last"], ["diagnose", "last"], ["status", "last", "--output", "json"])

    def said() -> list[str]:
        for verb in verbs:
            main(["--lang", language, *verb])
        set_language("en")
        return capsys.readouterr().out.splitlines()

    word = {"en": "is unknown", "zh": "不知道那里"}[language]
    assert any(word in line for line in said())
    log.add(EventKind.NODE_STATE, "looked again", attempt=0, node="gpu1", data={"state": "stopped"})
    after = said()
    text = "\n".join(after)
    assert not any(word in line for line in after), text
    assert "attach" not in text
    assert {"en": "nothing of the job is left on gpu1", "zh": "gpu1 上已没有该作业的任何东西"}[language] in text


def test_a_host_that_is_still_lost_is_named_beside_the_one_that_was_cleared() -> None:
    outcome = {"nodes": {"gpu1": {"end": "lost"}, "gpu2": {"end": "lost"}, "gpu3": {"end": "clean"}}}
    events = [Event(0, 1.0, EventKind.JOB_STATE, "lost", data={"state": "FAILED", OUTCOME: outcome})]
    assert Aftermath(events).reason == ""
    events.append(Event(1, 2.0, EventKind.NODE_STATE, "", node="gpu2", data={"state": "lost"}))
    assert Aftermath(events).reason == ""
    events.append(Event(2, 3.0, EventKind.NODE_STATE, "", node="gpu1", data={"state": "ended"}))
    assert Aftermath(events).reason.endswith("nothing of the job is left on gpu1, and of gpu2 it is not known")
    assert Aftermath(events).cleared == ("gpu1",)


@pytest.mark.parametrize("hurries", [False, True])
async def test_logs_of_a_host_that_goes_away_after_its_end_are_not_waited_for_without_limit(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch, hurries: bool
) -> None:
    monkeypatch.setattr(node_run, "SILENT_DRAIN_S", 0.05)
    monkeypatch.setattr(node_run, "HURRIED_DRAIN_S", 0.05)
    ended = NodeStatus(AttemptKey(directory.job_id, 0), 0, NodeState.ENDED)
    gone = FakeHost(error=HostUnreachableError("gpu1", "gpu1: connection refused"))
    transport = FakeTransport({"gpu1": gone})
    planned, environment = plan_for("gpu1").nodes[0], Environment(name="gpu1", host="gpu1")
    key = AttemptKey(directory.job_id, 0)
    node = node_run.NodeRun(environment, planned, key, directory, transport, Nobody(), lambda: None)
    node.learn(ended)
    node.hurries = hurries
    await asyncio.wait_for(node.follow(), 20)
    assert node.is_cut_short
    assert log_rest(directory.job_id, node).message == (
        "gpu1 could not be reached any more after it had ended: the rest of its logs was not fetched"
    )
