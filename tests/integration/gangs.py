"""Gangs of the embedded cluster in this process, so that a test can hold one up between two of its steps."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dttui import jobs
from dttui.engine.attempt import Attempt
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.context import JobContext
from dttui.engine.recovered import RecoveredState
from dttui.engine.start import GangStart
from dttui.inventory.demo import demo_inventory
from dttui.inventory.models import Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.planning.models import BoundPlan
from dttui.planning.planner import plan as make_plan
from dttui.rpc.client import AgentClient
from dttui.spec import parse_job
from dttui.transport.base import Nobody
from dttui.transport.routes import Transports
from tests.integration.headless import EXAMPLE, write_job

ONE, TWO, THREE = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"


def have_older_agent(monkeypatch: pytest.MonkeyPatch, name: str, **lacks: bool) -> None:
    """Have the agent of a host greet as one of a version before it had something: `takes_bytes=False`."""
    call = AgentClient.call

    async def call_older_one(client: AgentClient, method: str, *arguments: Any, **named: Any) -> Any:
        reply = await call(client, method, *arguments, **named)
        return replace(reply, **lacks) if (client.name, method) == (name, "hello") else reply

    monkeypatch.setattr(AgentClient, "call", call_older_one)


class TestGang:
    """A gang, its events, and its start apart from the rest of it."""

    __test__ = False

    def __init__(
        self, base: Path, nodes: dict[str, int], inventory: Inventory | None = None, name: str = "test", **fields: Any
    ) -> None:
        base.mkdir(parents=True, exist_ok=True)
        document = yaml.safe_load(
            write_job(base, nodes, framework=fields.pop("framework", "command"), **fields).read_text()
        )
        document["distributed_training"]["name"] = name
        job = parse_job(yaml.safe_dump(document), "job.yaml")
        known = inventory or demo_inventory(Path(os.environ["DTTUI_DEMO_ROOT"]), EXAMPLE.parent, sys.executable)
        self.directory: JobDirectory = jobs.create(name)
        self.log = EventLog(self.directory.events)
        self.job = JobContext(
            self.directory,
            self.log,
            Transports(),
            Nobody(),
            inventory=known,
            replan=lambda found, facts, _links: make_plan(job, found, facts),
            base=base,
            secrets={},
        )
        self.gang = Attempt(self.job, RecoveredState.new(make_plan(job, known, {})))
        self.nodes = {node.name: node for node in self.gang.nodes}
        self.gang_start = GangStart(self.directory, AttemptLog(self.log, 0), self.gang.nodes, self.gang.plan, base, {})

    async def connect(self) -> None:
        """Connect to all nodes, as the preflight does before a start."""
        await asyncio.gather(*(node.connect() for node in self.nodes.values()))

    async def start(self) -> BoundPlan:
        """Prepare and start, without a preflight; raise what the launch would."""
        await self.connect()
        return await self.gang_start.run(self.gang.unless_stopped)

    async def end(self) -> None:
        """Kill what runs, and let go of the hosts."""
        await self.gang_start.roll_back()
        await self.close()

    async def close(self) -> None:
        """Let go of the hosts."""
        for node in self.nodes.values():
            await node.close()

    def messages(self, *kinds: str) -> list[str]:
        """Return what was told, of some kinds of events."""
        return [event.message for event in self.directory.read_events() if event.kind.value in kinds]


async def daemon_of(gang: TestGang, name: str) -> int:
    """Return the pid of the agent of a node."""
    client = await gang.nodes[name].connect()
    assert client.hello is not None
    return client.hello.pid


class Stopped:
    """Holds a process up for the length of a `with` block."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __enter__(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGCONT)
