"""What a job that is over still lacks: fetched once its hosts answer, written once there is room, and not for ever."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable

import pytest
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import EventKind, JobState
from dtagent.protocol.jobs import NodeState, NodeStatus
from dtagent.protocol.logs import FollowReply, LogChunk
from dtagent.protocol.rpc import to_wire

from dttui import jobs
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.completion import MOST_LOOKS, Completion
from dttui.engine.leftovers import clean_up_after_job
from dttui.engine.nodes import node_run
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.watch import GangWatch
from dttui.errors import HostUnreachableError
from dttui.files import write_atomic
from dttui.inventory.models import Environment, Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.left_to_do import LOG_REST, unfetched_nodes
from dttui.jobs.view import FILES_LATE
from dttui.spec.findings import warning
from dttui.transport.base import Nobody
from tests.fake_transport import FakeHost, FakeTransport
from tests.unit.jobs.test_follow import plan_for
from tests.unit.rpc.test_agent_client import agent

LIMIT_S = 20.0
PAUSES_S = [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0]
"""Between eight looks."""


class Naps:
    """In place of `asyncio.sleep`: takes no time, and does what happens meanwhile."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.seconds: list[float] = []
        self._meanwhile = meanwhile

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self._meanwhile()


@pytest.fixture
def directory() -> JobDirectory:
    directory = jobs.create("late")
    write_atomic(directory.plan, plan_for("gpu1").model_dump_json())
    return directory


@pytest.fixture
def log(directory: JobDirectory) -> EventLog:
    return EventLog(directory.events)


async def complete(
    log: EventLog, directory: JobDirectory, naps: Naps, *, wants_logs: Callable[[], bool] = lambda: True
) -> int:
    """Have all done that is to be done on hosts that never answer; return how often they were looked at."""
    looks = 0

    async def look() -> None:
        nonlocal looks
        looks += 1

    await asyncio.wait_for(Completion(directory, log, look, wants_logs, naps).complete(), LIMIT_S)
    return looks


async def test_hosts_that_never_answer_are_looked_at_eight_times_and_nothing_is_waited_for_after_the_last(
    directory: JobDirectory, log: EventLog
) -> None:
    AttemptLog(log, 0).tell(warning(LOG_REST, "gpu1", "its rest was not fetched"))
    naps = Naps()
    assert await complete(log, directory, naps) == MOST_LOOKS
    assert naps.seconds == PAUSES_S
    (told,) = (event for event in directory.read_events() if event.data.get(FILES_LATE))
    assert "are fetched once their hosts answer" in told.message


async def test_a_job_that_lacks_nothing_is_left_at_once(directory: JobDirectory, log: EventLog) -> None:
    naps = Naps()
    assert await complete(log, directory, naps) == 0
    assert (naps.seconds, directory.read_events()) == ([], [])


async def test_a_host_that_is_only_lost_is_left_to_whoever_attaches(directory: JobDirectory, log: EventLog) -> None:
    log.add(EventKind.NODE_STATE, "lost", attempt=0, node="gpu1", data={"state": "lost"})
    naps = Naps()
    assert await complete(log, directory, naps) == 0
    assert naps.seconds == []


async def test_logs_that_a_forced_stop_leaves_on_hosts_are_not_fetched(directory: JobDirectory, log: EventLog) -> None:
    AttemptLog(log, 0).tell(warning(LOG_REST, "gpu1", "its rest was not fetched"))
    wanted = [True]
    naps = Naps(wanted.clear)
    assert await complete(log, directory, naps, wants_logs=lambda: bool(wanted)) == 1
    assert naps.seconds == PAUSES_S[:1]


async def test_lines_that_a_full_disk_held_back_are_written_before_any_host_is_looked_at(
    directory: JobDirectory, log: EventLog
) -> None:
    AttemptLog(log, 0).tell(warning(LOG_REST, "gpu1", "its rest was not fetched"))
    aside = directory.events.rename(directory.path / "aside")
    directory.events.mkdir()  # What a line can no more be appended to than to a full disk.
    log.add(EventKind.PROGRESS, "held back")

    def make_room() -> None:
        if len(naps.seconds) == 3:
            directory.events.rmdir()
            aside.rename(directory.events)

    naps = Naps(make_room)
    await complete(log, directory, naps)
    assert naps.seconds == [5.0, 5.0, 5.0, *PAUSES_S]
    assert "held back" in [event.message for event in directory.read_events()]
    (told,) = (event for event in directory.read_events() if event.data.get(FILES_LATE))
    assert "is written once there is room" in told.message


async def test_a_lost_host_is_asked_for_its_logs_while_another_is(
    directory: JobDirectory, log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dttui.engine.leftovers.LOOK_DEADLINE_S", 0.2)
    write_atomic(directory.plan, plan_for("gpu1", "gpu2").model_dump_json())
    AttemptLog(log, 0).tell(warning(LOG_REST, "gpu1", "its rest was not fetched"))
    log.add(EventKind.NODE_STATE, "lost", attempt=0, node="gpu2", data={"state": "lost"})
    log.add(EventKind.JOB_STATE, "", attempt=0, data={"state": JobState.FAILED.value, "exit_code": 1})
    ended = NodeStatus(AttemptKey(directory.job_id, 0), 0, NodeState.ENDED)
    lines = [LogChunk("1.out", 0, base64.b64encode(b"one\n").decode())]

    def answer(method: str) -> object:
        return to_wire(FollowReply(ended, "", [lines.pop()] if lines else [])) if method == "follow" else to_wire(ended)

    silent = FakeHost(agent(answer), error=HostUnreachableError("gpu1", "gpu1: no route"))
    transport = FakeTransport({"gpu1": silent, "gpu2": FakeHost(agent(answer))})
    inventory = Inventory(environments=tuple(Environment(name=name, host=name) for name in ("gpu1", "gpu2")))

    async def look() -> None:
        await clean_up_after_job(directory, log, inventory, transport, Nobody(), forced=asyncio.Event())

    naps = Naps()
    await asyncio.wait_for(Completion(directory, log, look, lambda: not naps.seconds, naps).complete(), LIMIT_S)
    assert (directory.logs(0, "gpu2") / "1.out").read_bytes() == b"one\n"
    assert unfetched_nodes(directory.read_events()) == ["gpu1"]


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("newest", [0, 1])
async def test_the_rest_of_the_logs_of_a_host_that_fell_silent_is_fetched_once_it_answers(
    newest: int, directory: JobDirectory, log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it did so in the last attempt, or another came after."""
    monkeypatch.setattr(node_run, "RECONNECT_S", 0.001)
    monkeypatch.setattr(node_run, "SILENT_DRAIN_S", 0.05)
    monkeypatch.setattr("dttui.engine.leftovers.LOOK_DEADLINE_S", 0.2)
    key, silence = AttemptKey(directory.job_id, 0), HostUnreachableError("gpu1", "gpu1: no route")
    ended = NodeStatus(key, 0, NodeState.ENDED)
    rest = [b"one\n", b"two\n"]

    def answer(method: str) -> object:
        if method != "follow":
            return to_wire(ended)
        if not rest:
            return to_wire(FollowReply(ended, ""))
        line = base64.b64encode(rest.pop(0)).decode()
        return to_wire(FollowReply(ended, "", [LogChunk("0.out", 4 - 4 * len(rest), line)], more=True))

    host = FakeHost(agent(answer), error=silence)
    transport, inventory = FakeTransport({"gpu1": host}), Inventory(environments=(Environment(name="gpu1", host="g"),))
    planned = plan_for("gpu1").nodes[0]
    node = NodeRun(inventory.environments[0], planned, key, directory, transport, Nobody(), lambda: None)
    node.learn(ended)
    await asyncio.wait_for(node.follow(), LIMIT_S)
    GangWatch(directory, AttemptLog(log, 0), [node], asyncio.Event(), ()).report()
    await node.close()
    log.add(EventKind.JOB_STATE, "", attempt=newest, data={"state": JobState.SUCCEEDED.value, "exit_code": 0})
    assert unfetched_nodes(directory.read_events()) == ["gpu1"]

    def come_back() -> None:
        if len(naps.seconds) == 2:
            host.error = None

    async def look() -> None:
        await clean_up_after_job(directory, log, inventory, transport, Nobody(), forced=asyncio.Event())

    naps = Naps(come_back)
    await asyncio.wait_for(Completion(directory, log, look, lambda: True, naps).complete(), LIMIT_S)
    assert naps.seconds == PAUSES_S[:2]
    assert (directory.logs(0, "gpu1") / "0.out").read_bytes() == b"one\ntwo\n"
    assert unfetched_nodes(directory.read_events()) == []
    assert directory.read_events()[-1].message == "the rest of the logs of gpu1 was fetched"
