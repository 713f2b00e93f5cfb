"""How often hosts are asked for a place, and when a job lets others by: with hosts that are fakes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dtagent.protocol.queueing import QueueReply, QueueRequest
from dtagent.protocol.telemetry import GpuHold, GpuWait

from dttui import jobs
from dttui.engine import queue_places
from dttui.engine.context import JobContext
from dttui.engine.queue_places import QueuePlaces
from dttui.errors import AuthenticationError, HostError, HostKeyError, HostUnreachableError, LaunchError
from dttui.inventory.models import Environment, Inventory
from dttui.jobs.event_log import EventLog
from dttui.planning.planner import plan
from dttui.spec.models import GpuRequest, Node, NodeResources, Run
from dttui.transport.base import Nobody
from tests.fake_transport import FakeTransport
from tests.unit.seed_cluster import environment, make_job
from tests.waiting import until

INVENTORY = Inventory(
    environments=tuple(
        environment(name, gpus=2, address=f"10.0.0.{i}", python="/py") for i, name in enumerate("abc", 1)
    )
)


class FakeAgents:
    """Agents that answer as told, or cannot be reached, and what was asked of them."""

    def __init__(self, answers: Mapping[str, QueueReply | HostError], old: Collection[str] = ()) -> None:
        self._answers = answers
        self._old = old
        self.takes_named_gpus = True
        self.connects: list[str] = []
        self.asked: dict[str, list[QueueRequest]] = {}
        self.answered: dict[str, list[QueueRequest]] = {}
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def connect(self, environment: Environment, *_how: object) -> SimpleNamespace:
        name = environment.name
        self.connects.append(name)
        answer = self._answers[name]
        if isinstance(answer, HostError):
            raise answer

        async def call(_method: str, request: QueueRequest, *_more: object) -> QueueReply:
            self.asked.setdefault(name, []).append(request)
            await self.may_answer.wait()
            self.answered.setdefault(name, []).append(request)
            return answer

        async def close() -> None:
            pass

        hello = SimpleNamespace(keeps_line=name not in self._old, takes_named_gpus=self.takes_named_gpus)
        return SimpleNamespace(hello=hello, call=call, close=close)


@pytest.fixture
async def standing() -> AsyncIterator[list[QueuePlaces]]:
    """Job's places, which are left after the test."""
    found: list[QueuePlaces] = []
    yield found
    for places in found:
        await places.leave()


def stand(
    monkeypatch: pytest.MonkeyPatch,
    agents: FakeAgents,
    standing: list[QueuePlaces],
    *named: str | Node,
    others: Sequence[str],
    pass_over: Callable[[str, str, str], None] | None = None,
) -> QueuePlaces:
    monkeypatch.setattr(queue_places, "AgentClient", agents)
    monkeypatch.setattr(queue_places, "POLL_S", 0.01)
    monkeypatch.setattr(queue_places, "RETRY_S", 0.02)
    directory = jobs.create("x")
    made = plan(make_job(*named, run=Run(script="train.py", workdir="/srv")), INVENTORY)
    job = JobContext(
        directory, EventLog(directory.events), FakeTransport({}), Nobody(), INVENTORY, _no_plan, Path(), {}
    )
    places = QueuePlaces(job, made, 0, time.time(), others=others, pass_over=pass_over)
    places.stand()
    standing.append(places)
    return places


def _no_plan(*_known: Any) -> Any:
    raise AssertionError("nothing is planned while a job waits")


@pytest.mark.parametrize("refusal", [AuthenticationError("c", "no key fits"), HostKeyError("c", "unknown key")])
async def test_one_that_lets_nobody_in_is_tried_ever_less_often_until_somebody_is_there(
    monkeypatch: pytest.MonkeyPatch, standing: list[QueuePlaces], refusal: HostError
) -> None:
    agents = FakeAgents({"a": HostUnreachableError("a", "no route"), "c": refusal})
    places = stand(monkeypatch, agents, standing, "a", others=["c"])
    await until(lambda: agents.connects.count("a") > 40, "a to be tried again and again", 30.0)
    tried = agents.connects.count("c")
    assert 2 <= tried <= 8
    places.retry_now()
    await until(lambda: agents.connects.count("c") > tried, "c to be tried at once", 30.0)


@pytest.mark.parametrize(
    ("answer", "lets_by"),
    [
        (QueueReply(0.0), True),
        (QueueReply(0.0, before=[GpuWait("x", "li", 0.0, 1)]), False),
    ],
)
async def test_a_job_keeps_nobody_waiting_for_hosts_on_which_it_never_has_room(
    monkeypatch: pytest.MonkeyPatch, standing: list[QueuePlaces], answer: QueueReply, lets_by: bool
) -> None:
    """On `a` it has room and `b` is out of reach: one that does as well as `b` decides whether it lets others by."""
    monkeypatch.setattr(queue_places, "ASIDE_S", 0.0)
    agents = FakeAgents({"a": QueueReply(0.0, has_room=True), "b": HostUnreachableError("b", "no route"), "c": answer})
    stand(monkeypatch, agents, standing, "a", "b", others=["c"])
    await until(lambda: len(agents.asked.get("a", [])) > 20, "a to be asked again and again", 30.0)
    assert agents.asked["a"][-1].stands_aside is lets_by


async def test_one_whose_agent_keeps_no_line_is_passed_over_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, standing: list[QueuePlaces]
) -> None:
    told: list[tuple[str, str, str]] = []
    agents = FakeAgents({"a": HostUnreachableError("a", "no route"), "c": QueueReply(0.0, has_room=True)}, old=["c"])
    stand(monkeypatch, agents, standing, "a", others=["c"], pass_over=lambda *words: told.append(words))
    await until(lambda: agents.connects.count("a") > 3, "a to be tried again and again", 30.0)
    assert told == [("c", "c: its agent is too old for --queue: it keeps no line", "Upgrade it: dttui agents deploy c")]
    assert agents.connects.count("c") == 1


async def test_a_place_is_given_up_after_the_last_word_that_kept_it(
    monkeypatch: pytest.MonkeyPatch, standing: list[QueuePlaces]
) -> None:
    """An agent deals with each word on a thread of its own, so it may hear of two in the other order."""
    agents = FakeAgents({"a": QueueReply(0.0)})
    agents.may_answer.clear()
    places = stand(monkeypatch, agents, standing, "a", others=[])
    await until(lambda: "a" in agents.asked, "a to be asked", 30.0)
    leaving = asyncio.create_task(places.leave())
    await asyncio.sleep(0)
    agents.may_answer.set()
    await leaving
    assert [request.leaves for request in agents.answered["a"]] == [False, True]


NAMING = Node(id="a", resources=NodeResources(gpu=GpuRequest(ids=(1,))))


async def test_a_host_is_asked_for_the_gpus_that_the_job_names_and_one_that_does_as_well_for_as_many(
    monkeypatch: pytest.MonkeyPatch, standing: list[QueuePlaces]
) -> None:
    agents = FakeAgents({"a": QueueReply(0.0), "c": QueueReply(0.0)})
    places = stand(monkeypatch, agents, standing, NAMING, others=["c"])
    await until(lambda: agents.asked.keys() == {"a", "c"}, "both to be asked", 30.0)
    asked = {name: (requests[0].gpu_ids, requests[0].cuda_slots) for name, requests in agents.asked.items()}
    assert asked == {"a": ([1], 1), "c": ([], 1)}
    assert not places.have_room


async def test_nobody_waits_for_gpus_by_name_at_an_agent_that_would_give_any(
    monkeypatch: pytest.MonkeyPatch, standing: list[QueuePlaces]
) -> None:
    agents = FakeAgents({"a": QueueReply(0.0, has_room=True)})
    agents.takes_named_gpus = False
    places = stand(monkeypatch, agents, standing, NAMING, others=[])
    with pytest.raises(LaunchError, match=r"too old for resources.gpu.ids: it would give any GPUs") as refused:
        await places.wait(asyncio.Event())
    assert refused.value.hint == "Upgrade it: dttui agents deploy a"
    assert agents.asked == {}


async def test_of_gpus_that_are_named_who_has_others_is_not_told(
    monkeypatch: pytest.MonkeyPatch, standing: list[QueuePlaces]
) -> None:
    holds = [GpuHold("ann", gpus=[0]), GpuHold("bob", gpus=[1])]
    agents = FakeAgents({"a": QueueReply(0.0, holds=holds)})
    request = Node(id="a", resources=NodeResources(gpu=GpuRequest(ids=(1,))))
    places = stand(monkeypatch, agents, standing, request, others=[])
    waiting = asyncio.create_task(places.wait(asyncio.Event()))

    def told() -> list[str]:
        return [event.message for item in jobs.list_jobs() for event in jobs.find(item.job_id).read_events()]

    await until(lambda: told(), "it to be told who is in the way", 30.0)
    waiting.cancel()
    assert "bob" in told()[-1]
    assert "ann" not in told()[-1]
