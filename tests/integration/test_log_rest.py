"""Logs that a forced stop left on a host: the next look at the job fetches them, once, and says what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.leftovers import clean_up_after_job
from dttui.engine.nodes import node_run
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.watch import GangWatch
from dttui.files import write_atomic
from dttui.inventory.models import Environment, Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.left_to_do import unfetched_nodes
from dttui.transport.local import LocalTransport
from tests.agent.conversation import Conversation
from tests.unit.jobs.test_follow import plan_for

TRUTH = b"".join(b"%d\n" % number for number in range(1, 60_001))
"""More than one answer carries."""


class Nobody:
    async def ask(self, prompt: object) -> str | None:
        return None


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Conversation]:
    with Conversation(tmp_path / "host") as conversation:
        yield conversation


@pytest.fixture
def environment(agent: Conversation) -> Environment:
    return Environment.model_validate({"name": "gpu1", "host": "gpu1", "agent_root": str(agent.root)})


@pytest.fixture
async def directory(agent: Conversation, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> JobDirectory:
    """A job that a forced stop ended while most of its log was still to be fetched."""
    directory = jobs.create("cut")
    plan = plan_for("gpu1")
    write_atomic(directory.plan, plan.model_dump_json())
    agent.prepare(directory.job_id)
    agent.start(directory.job_id, [["seq", "60000"]])
    agent.end_of(directory.job_id)
    key = AttemptKey(directory.job_id, 0)
    node = NodeRun(environment, plan.nodes[0], key, directory, LocalTransport(), Nobody(), lambda: None)
    node.hurries = True
    with monkeypatch.context() as patched:
        patched.setattr(node_run, "HURRIED_DRAIN_S", -1.0)
        await node.follow()
    GangWatch(directory, AttemptLog(EventLog(directory.events), 0), [node], asyncio.Event(), ()).report()
    await node.close()
    return directory


def log(directory: JobDirectory) -> bytes:
    """Return the copy of the log without the lines of our own."""
    lines = (directory.logs(0, "gpu1") / "0.out").read_bytes().splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith("…".encode()))


async def look(directory: JobDirectory, environment: Environment) -> str:
    """Look at the job again; return the last that is told of it."""
    events, inventory = EventLog(directory.events), Inventory(environments=(environment,))
    await clean_up_after_job(directory, events, inventory, LocalTransport(), Nobody(), forced=asyncio.Event())
    return directory.read_events()[-1].message


async def test_the_rest_is_fetched_by_the_next_look_at_the_job(
    directory: JobDirectory, environment: Environment
) -> None:
    assert len(log(directory)) < len(TRUTH)
    assert unfetched_nodes(directory.read_events()) == ["gpu1"]
    (told,) = (event for event in directory.read_events() if event.kind is EventKind.FINDING)
    assert f"dttui attach {directory.job_id}" in told.data["hint"]
    assert await look(directory, environment) == "the rest of the logs of gpu1 was fetched"
    assert log(directory).replace(b"\n", b"") == TRUTH.replace(b"\n", b""), "the mark may come within a line"
    assert unfetched_nodes(directory.read_events()) == []


async def test_what_a_host_that_is_silent_has_is_left_for_later_and_what_it_has_no_more_is_given_up(
    directory: JobDirectory, environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = environment.model_copy(update={"agent_root": "/proc/nowhere"})
    with monkeypatch.context() as patched:
        patched.setattr("dttui.engine.leftovers.LOOK_DEADLINE_S", 2.0)
        assert (await look(directory, silent)).startswith("the rest was not fetched: gpu1: ")
    assert unfetched_nodes(directory.read_events()) == ["gpu1"]
    empty = environment.model_copy(update={"agent_root": str(tmp_path / "empty")})
    with Conversation(tmp_path / "empty"):
        assert await look(directory, empty) == "gpu1 keeps nothing of this job any more"
    assert unfetched_nodes(directory.read_events()) == []
