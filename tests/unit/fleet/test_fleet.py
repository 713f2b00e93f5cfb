"""Watching environments: hosts that come back, and agents that are deployed while somebody looks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from dtagent.protocol.rpc import to_wire

from dttui.fleet import live
from dttui.fleet.live import Fleet, retry_delay_s
from dttui.fleet.states import EnvironmentState
from dttui.inventory.models import Inventory, Reach
from dttui.transport.base import Nobody
from dttui.transport.routes import TRANSPORTS
from tests.fake_transport import FakeHost, FakeProcess, FakeTransport
from tests.unit.rpc.test_agent_client import agent
from tests.unit.seed_cluster import environment, host_facts

DEADLINE_S = 10.0
SAMPLE = {"seq": 1, "time": 1000.0}


async def no_agent(process: FakeProcess) -> int:
    process.stderr += b"sh: 1: exec: /var/tmp/dtagent-0/current/bin/python: not found\n"
    return 127


async def test_an_agent_that_is_deployed_meanwhile_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "RETRY_S", (0.01,))
    host = FakeHost(no_agent)
    transport = FakeTransport({"a": host})
    watched = Fleet(Inventory(environments=(environment("a", 2),)).environments, transport, Nobody())
    watched.start()
    await watched.settle(DEADLINE_S)
    assert watched.statuses["a"].state == "no agent"
    asked = 0
    was_read = asyncio.Event()

    def answer(method: str) -> object:
        nonlocal asked
        asked += method == "telemetry"
        if asked == 2:
            was_read.set()
            return b""
        return to_wire(host_facts(2)) if method == "facts" else {"samples": [SAMPLE]}

    host.handler = agent(answer)
    await asyncio.wait_for(was_read.wait(), DEADLINE_S)
    assert watched.statuses["a"].state == "idle"
    await watched.close()


def test_a_host_without_an_agent_is_asked_more_often_than_one_that_is_away() -> None:
    delays = [retry_delay_s(failures, EnvironmentState.NO_AGENT) for failures in range(8)]
    assert delays == sorted(delays)
    assert delays[0] == 5
    assert delays[-1] == 20
    assert retry_delay_s(99, EnvironmentState.UNREACHABLE) == 60


async def test_a_defect_on_the_way_to_a_host_is_told_and_leaves_no_row_waiting() -> None:
    def play(_process: FakeProcess) -> Awaitable[int]:
        raise KeyError("websocket")

    watched = Fleet([environment("a", 2)], FakeTransport({"a": FakeHost(play)}), Nobody())
    watched.start()
    await watched.settle(DEADLINE_S)
    assert not watched.pending
    assert watched.statuses["a"].state == "unreachable"
    assert watched.statuses["a"].reason == "a: internal error: KeyError: 'websocket'"
    await watched.close()


def test_each_way_to_reach_a_host_has_its_transport() -> None:
    assert set(TRANSPORTS) == set(Reach)
