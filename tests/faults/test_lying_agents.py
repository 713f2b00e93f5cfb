"""Agents that lie about frames, ids, offsets, names and sequence numbers: only bytes of the job's own are taken."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.attempt_key import AttemptKey

from dttui import jobs
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.copies.log_copy import LogCopy
from dttui.engine.failures import last_words, rank_failures
from dttui.engine.nodes import node_run
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.watch import GangWatch
from dttui.errors import HostError
from dttui.inventory.models import Environment
from dttui.jobs.event_log import EventLog
from dttui.rpc.client import AgentClient
from dttui.rpc.sample_rows import ReceivedSample
from dttui.transport.base import Nobody
from dttui.transport.local import LocalTransport
from tests.agent.conversation import Conversation, processes_with
from tests.faults.lying_agent import LIES
from tests.unit.jobs.test_follow import plan_for
from tests.waiting import until

LIAR = Path(__file__).with_name("lying_agent.py")
DEADLINE_S = 60.0
TRUTH = b"".join(b"%d\n" % number for number in range(1, 60_001))
"""More than one answer carries."""
FRAMES = [lie for lie in LIES if lie.startswith(("no ", "deeper", "a line", "a number", "a chunk of", "half "))]
NOBODYS = ["answers to calls not made yet", "ids that are none"]
ENDLESS = [lie for lie in LIES if lie.startswith(("gaps without", "a new file"))]
AGELESS = ["an end of no age", "a clock of no age"]
WORDS = ["words", "long words", "a kernel of 10 MB"]
NUMBERED = [lie for lie in LIES if lie.startswith("numbered")]
LOGS = [lie for lie in LIES if lie.startswith(("a log", "a gap below", "a file", "a rank", "bytes"))]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversation]:
    """An agent on which a job has written its log and ended."""
    with Conversation(tmp_path_factory.mktemp("host") / "root") as conversation:
        conversation.prepare("lied")
        conversation.start("lied", [["seq", "60000"]])
        conversation.end_of("lied")
        yield conversation


@pytest.fixture
def node(agent: Conversation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], NodeRun]:
    """Return the node of the job as seen through a bridge that lies, for ever or once."""
    monkeypatch.setattr(node_run, "RECONNECT_S", 0.02)

    def make(lie: str, marker: str) -> NodeRun:
        environment = Environment.model_validate({"name": "gpu1", "host": "gpu1", "agent_root": str(agent.root)})
        transport = LocalTransport([sys.executable, "-I", str(LIAR), lie, marker])
        directory = jobs.create("lied")
        planned = plan_for("gpu1").nodes[0]
        return NodeRun(environment, planned, AttemptKey("lied", 0), directory, transport, Nobody(), lambda: None)

    return make


def taken(node: NodeRun) -> bytes:
    """Return the log as it was copied here; nothing else may have been written."""
    logs = node.directory.logs(0, "gpu1")
    assert not logs.exists() or {path.name for path in logs.iterdir()} <= {"0.out", "0.err"}
    outside = [path for path in node.directory.path.parents[2].rglob("evil*")]
    assert outside == []
    return (logs / "0.out").read_bytes() if (logs / "0.out").exists() else b""


async def followed(node: NodeRun) -> HostError | None:
    """Follow the node to its end, or to the error that gives it up; close it."""
    try:
        await asyncio.wait_for(node.follow(), DEADLINE_S)
    except HostError as error:
        return error
    finally:
        await node.close()
    return None


async def test_answers_that_come_twice_change_nothing(node: Callable[[str, str], NodeRun]) -> None:
    """Within 30 s the log is here, each byte once; no file but its own was written."""
    told = node("answers come twice", "-")
    assert await followed(told) is None
    assert taken(told) == TRUTH


@pytest.mark.parametrize("lie", [*FRAMES, *LOGS, *NOBODYS])
async def test_a_lie_that_is_told_once_costs_a_connection_at_most(
    node: Callable[[str, str], NodeRun], tmp_path: Path, lie: str
) -> None:
    """Within 30 s the log is here, each byte once."""
    told = node(lie, str(tmp_path / "lied"))
    assert await followed(told) is None
    assert (tmp_path / "lied").exists()
    assert taken(told) == TRUTH


async def test_bytes_that_are_said_to_be_gone_are_told_as_gone(
    node: Callable[[str, str], NodeRun], tmp_path: Path
) -> None:
    """Within 30 s: nobody can know better, but the copy says so in a line of its own."""
    told = node("a gap of 4 EiB", str(tmp_path / "lied"))
    await followed(told)
    assert taken(told).startswith(b"\xe2\x80\xa6 4,611,686,018,427,387,904 bytes of this log were not kept on the host")


@pytest.mark.parametrize("lie", LOGS)
async def test_an_agent_that_goes_on_lying_about_logs_is_given_up_by_name(
    node: Callable[[str, str], NodeRun], lie: str
) -> None:
    """Within 30 s; what was taken until then is the beginning of the truth."""
    told = node(lie, "-")
    error = await followed(told)
    assert error is not None
    assert error.message == "gpu1: the agent sends logs that were not asked for"
    assert TRUTH.startswith(taken(told))


async def test_what_a_forced_stop_leaves_behind_is_marked_where_there_is_more_of_it_alone(
    node: Callable[[str, str], NodeRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No log that came whole is said to have a rest, and a later controller fetches that of the others."""
    monkeypatch.setattr(node_run, "HURRIED_DRAIN_S", -1.0)
    told = node("answers come twice", "-")
    told.hurries = True
    assert await followed(told) is None
    assert told.is_cut_short
    short, half = told.directory.logs(0, "gpu1") / "0.err", taken(told)
    begun, mark = half.split("…".encode(), 1)
    assert TRUTH.startswith(begun.rstrip(b"\n"))
    assert mark.endswith("the stop was forced …\n".encode())
    assert not short.exists() or short.read_bytes() == b""
    told.hurries, told.record.logs = False, LogCopy(told.directory.logs(0, "gpu1"))
    assert await followed(told) is None
    whole = taken(told)
    assert whole.startswith(half)
    rest = whole[len(half) :]
    assert TRUTH in (begun + rest, begun[:-1] + rest)  # The mark has a line of its own.


async def test_samples_that_do_not_go_on_are_taken_once(node: Callable[[str, str], NodeRun]) -> None:
    """Whoever repeats a sample neither fills the disk nor keeps the controller busy."""
    told = node("samples that do not go on", "-")
    await told.connect()
    recording = asyncio.create_task(told.record_samples())
    await until(told.directory.samples("gpu1").exists, "the first one", DEADLINE_S)
    await asyncio.wait({recording}, timeout=2.0)
    assert not recording.done()
    recording.cancel()
    await asyncio.gather(recording, return_exceptions=True)
    await told.close()
    samples = [json.loads(line) for line in told.directory.samples("gpu1").read_text().splitlines()]
    assert [sample["seq"] for sample in samples] == [1]


@pytest.mark.parametrize("lie", ENDLESS)
async def test_an_agent_that_tells_of_gaps_without_end_is_given_up_by_name(
    node: Callable[[str, str], NodeRun], lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 30 s; the copy has a bounded number of marks, and the disk is not filled with them."""
    monkeypatch.setattr(node_run, "LEAST_FOLLOW_S", 0.0)
    told = node(lie, "-")
    error = await followed(told)
    assert error is not None
    assert error.message == "gpu1: the agent tells of gaps in logs without end"
    assert len(taken(told)) < 100_000


async def test_samples_that_leap_keep_nobody_busy(
    node: Callable[[str, str], NodeRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request for samples waits for its turn, however many new ones there are said to be."""
    told = node("samples that leap", "-")
    asked: list[float] = []
    ask = AgentClient.telemetry

    async def noted(client: AgentClient, *arguments: Any) -> list[ReceivedSample]:
        asked.append(asyncio.get_running_loop().time())
        return await ask(client, *arguments)

    monkeypatch.setattr(AgentClient, "telemetry", noted)
    await told.connect()
    recording = asyncio.create_task(told.record_samples())
    await asyncio.wait({recording}, timeout=2.0)
    assert not recording.done()
    recording.cancel()
    await asyncio.gather(recording, return_exceptions=True)
    await told.close()
    assert 1 <= len(asked) <= 5


async def test_news_without_end_keep_nobody_busy_and_fill_no_disk(node: Callable[[str, str], NodeRun]) -> None:
    """Each question waits for its turn, and of an agent's warnings so many are passed on, and so much of each."""
    told = node("news without end", "-")
    events = EventLog(told.directory.events)
    watch = GangWatch(told.directory, AttemptLog(events, 0), [told], asyncio.Event(), ())
    heard = 0

    def report() -> None:
        nonlocal heard
        heard += 1
        watch.report()

    told.on_change = report
    began = time.monotonic()
    following = asyncio.create_task(told.follow())
    await until(lambda: heard > 40, "more than is passed on", DEADLINE_S)
    took_s = time.monotonic() - began
    assert not following.done()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await told.close()
    assert took_s >= 40 * node_run.LEAST_FOLLOW_S
    warned = [event for event in told.directory.read_events() if event.data.get("code") == "agent-records"]
    assert len(warned) == 20
    assert max(len(event.message) for event in warned) < 600


@pytest.mark.parametrize("lie", AGELESS)
async def test_a_time_that_no_clock_shows_becomes_the_time_at_which_it_was_heard(
    node: Callable[[str, str], NodeRun], lie: str
) -> None:
    """What failed is told and diagnosed all the same."""
    told = node(lie, "-")
    assert await followed(told) is None
    assert told.status is not None
    times = [*last_words(told)["ended_at"].values(), *(item.time for item in rank_failures(told.directory, [told]))]
    now = time.time()
    assert times
    assert all(now - 600 < item < now + 600 for item in times)


@pytest.mark.parametrize(
    ("lie", "is_elastic", "ranks"),
    [(lie, is_elastic, (0,)) for lie in NUMBERED[1:] for is_elastic in (True, False)]
    + [(NUMBERED[0], False, (0,)), (NUMBERED[0], True, (2,))],
)
async def test_a_numbering_is_believed_of_elastic_jobs_alone_and_within_their_world(
    node: Callable[[str, str], NodeRun], lie: str, is_elastic: bool, ranks: tuple[int, ...]
) -> None:
    """That two nodes tell of one rank no node can know; there is no round of such then."""
    told = node(lie, "-")
    told.shared.world_size, told.shared.is_elastic = 3, is_elastic
    assert await followed(told) is None
    assert told.status is not None
    assert told.status.numbering is not None
    assert told.ranks == ranks
    assert taken(told) == TRUTH


def test_every_lie_is_told_in_some_test() -> None:
    samples = {"samples that leap", "samples that do not go on"}
    tested = {*FRAMES, *NUMBERED, *NOBODYS, "answers come twice", *LOGS, *ENDLESS, *AGELESS, *samples, *WORDS}
    tested |= {"a gap of 4 EiB", "news without end"}
    assert tested == set(LIES)
    assert processes_with("DTTUI_JOB_ID=lied\0") == []
