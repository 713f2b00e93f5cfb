"""Watching environments: hosts that come back, and agents that are deployed while somebody looks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from dtagent.protocol.rpc import ErrorCode, to_wire
from dtagent.protocol.telemetry import HostSample

from dttui.errors import AgentError, AgentGoneError, HostUnreachableError
from dttui.fleet import live
from dttui.fleet.deployment.each_host import Visit, on_each
from dttui.fleet.live import Fleet, retry_delay_s
from dttui.fleet.states import EnvironmentState
from dttui.inventory.models import Inventory, Reach
from dttui.transport.base import Nobody
from dttui.transport.routes import TRANSPORTS
from tests.fake_transport import FakeHost, FakeProcess, FakeTransport
from tests.unit.rpc.test_agent_client import agent
from tests.unit.seed_cluster import environment, host_facts
from tests.waiting import until

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


async def test_the_version_of_an_agent_is_known_until_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "RETRY_S", (0.01,))
    host = FakeHost(agent(lambda method: to_wire(host_facts(2)) if method == "facts" else {"samples": [SAMPLE]}))
    watched = Fleet([environment("a", 2)], FakeTransport({"a": host}), Nobody())
    assert watched.statuses["a"].heard_at is None
    watched.start()
    await watched.settle(DEADLINE_S)
    known = watched.statuses["a"]
    assert known.agent_version
    assert known.protocol == 1
    assert known.heard_at is not None
    host.handler = no_agent
    watched.retry("a", drops=True)
    await until(lambda: watched.statuses["a"].state == "no agent", "its agent is gone")
    gone = watched.statuses["a"]
    assert (gone.agent_version, gone.protocol) == (None, None)
    assert gone.heard_at is not None
    assert gone.heard_at >= known.heard_at
    await watched.close()


def test_an_agent_of_another_protocol_is_told_from_one_that_is_missing() -> None:
    foreign = AgentError("a", "no common version", code=ErrorCode.VERSION)
    assert live._agent_after(foreign)["is_foreign"] is True  # noqa: SLF001
    assert live._agent_after(AgentGoneError("a", "none"))["is_foreign"] is False  # noqa: SLF001
    assert live._agent_after(HostUnreachableError("a", "away")) == {}  # noqa: SLF001


async def test_what_came_of_a_host_is_told_before_all_are_done() -> None:
    hosts = [environment("a", 2), environment("b", 2)]
    told: list[str] = []
    was_told = asyncio.Event()

    def note(name: str, _result: object) -> None:
        told.append(name)
        was_told.set()

    async def act(visit: Visit) -> str:
        if visit.host == "a":
            await asyncio.wait_for(was_told.wait(), DEADLINE_S)
            assert told == ["b"]
            return "done"
        raise AgentError("b", "b: broken")

    transport = FakeTransport({"a": FakeHost(no_agent), "b": FakeHost(no_agent)})
    first, second = await on_each(hosts, transport, Nobody(), act, on_done=note)
    assert first == "done"
    assert isinstance(second, AgentError)
    assert told == ["b", "a"]


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


async def test_a_host_is_judged_again_only_where_what_that_rests_on_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = {"user": "li", "gpus": [0]}
    gpu = {"index": 0, "utilization_percent": 3}
    told = [
        {"seq": 1, "time": 1000.0, "gpus": [gpu]},
        {"seq": 2, "time": 1001.0, "gpus": [{**gpu, "utilization_percent": 90}]},
        {"seq": 3, "time": 1002.0, "gpus": [gpu], "holds": [hold]},
        {"seq": 4, "time": 1003.0, "gpus": [gpu], "holds": [hold]},
        {"seq": 5, "time": 1003.0 + live.AGES_S, "gpus": [gpu], "holds": [hold]},
        {"seq": 6, "time": 1004.0 + live.AGES_S, "gpus": [{**gpu, "error": "GPU is lost"}], "holds": [hold]},
    ]
    judged: list[int] = []
    everything = asyncio.Event()
    judge = live._judge  # noqa: SLF001

    def noted(sample: HostSample) -> tuple[EnvironmentState, str]:
        judged.append(sample.seq)
        return judge(sample)

    monkeypatch.setattr(live, "_judge", noted)
    left = list(told)

    def answer(method: str) -> object:
        if method != "telemetry":
            return to_wire(host_facts(2)) if method == "facts" else {}
        if not left:
            everything.set()
        return {"samples": [left.pop(0)] if left else []}

    watched = Fleet([environment("a", 2)], FakeTransport({"a": FakeHost(agent(answer))}), Nobody())
    watched.start()
    await asyncio.wait_for(everything.wait(), DEADLINE_S)
    after = watched.statuses["a"]
    assert judged == [1, 3, 5, 6]
    assert after.state is EnvironmentState.UNHEALTHY
    assert after.reading is not None
    assert after.reading.seq == 6
    await watched.close()
