"""A conversation with a host that breaks: taken up again for a while, and given up in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from dtagent.protocol.rpc import ErrorCode

from dttui.errors import AgentError, HostUnreachableError
from dttui.fetching import host_link
from dttui.fetching.host_link import HostLink
from dttui.rpc.client import AgentClient
from tests.unit.seed_cluster import environment

GONE = HostUnreachableError("gpu1", "gone")


class Wire:
    """What stands for the ways to a host: answers one question after another, and counts connections."""

    def __init__(self, *answers: Exception | str) -> None:
        self.answers = list(answers)
        self.connections = 0

    async def connect(self, *_arguments: Any) -> SimpleNamespace:
        self.connections += 1
        return SimpleNamespace(call=self.call, close=self.close)

    async def call(self, *_arguments: Any) -> str:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        return


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Wire], HostLink]:
    monkeypatch.setattr(host_link, "RETRY_S", 0.0)

    def make(wire: Wire) -> HostLink:
        monkeypatch.setattr(AgentClient, "connect", wire.connect)
        nobody: Any = None
        return HostLink(environment("gpu1"), nobody, nobody)

    return make


async def ask(link: HostLink) -> str:
    return await link.call("m", None, str)


async def test_a_link_that_breaks_is_made_anew_and_the_question_put_again(linked: Callable[[Wire], HostLink]) -> None:
    wire = Wire("one", GONE, "two")
    link = linked(wire)
    assert [await ask(link), await ask(link)] == ["one", "two"]
    assert wire.connections == 2


async def test_patience_begins_with_the_first_failure_and_not_with_the_last_answer(
    linked: Callable[[Wire], HostLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host may wait long for its turn while nobody asks it anything, and its link break meanwhile."""
    clock = [0.0]
    monkeypatch.setattr(host_link, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    wire = Wire("one", GONE, "two")
    link = linked(wire)
    await ask(link)
    clock[0] = 10_000.0
    assert await ask(link) == "two"


async def test_a_host_that_stays_silent_is_given_up(
    linked: Callable[[Wire], HostLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_link, "PATIENCE_S", 0.05)
    wire = Wire("one", *[GONE] * 100_000)
    link = linked(wire)
    await ask(link)
    with pytest.raises(HostUnreachableError, match="gone"):
        await asyncio.wait_for(ask(link), 60.0)
    never = linked(Wire(GONE, "late"))
    with pytest.raises(HostUnreachableError):
        await ask(never)


@pytest.mark.parametrize("code", [ErrorCode.BUSY, ErrorCode.TIMED_OUT])
async def test_an_agent_that_has_too_much_to_do_is_asked_again_over_the_same_link(
    linked: Callable[[Wire], HostLink], code: ErrorCode
) -> None:
    wire = Wire("one", AgentError("gpu1", "busy", code=code), "two")
    link = linked(wire)
    assert [await ask(link), await ask(link)] == ["one", "two"]
    assert wire.connections == 1


async def test_what_an_agent_refuses_is_refused_and_an_old_one_is_said_to_be_so(
    linked: Callable[[Wire], HostLink],
) -> None:
    link = linked(Wire("one", AgentError("gpu1", "no", code=ErrorCode.REFUSED)))
    await ask(link)
    with pytest.raises(AgentError, match="no"):
        await ask(link)
    old = linked(Wire(AgentError("gpu1", "what?", code=ErrorCode.UNKNOWN_METHOD)))
    with pytest.raises(AgentError, match="too old to hand out files") as caught:
        await ask(old)
    assert caught.value.hint == "Upgrade it: dttui agents upgrade gpu1"
