"""Spares that are well, off, hung, taken or otherwise equipped: what is told of them, and that nobody waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from dtagent.protocol.facts import HostFacts

from dttui.errors import HostUnreachableError
from dttui.inventory.models import Inventory
from dttui.planning.cost.links import MeasuredLink, newest
from dttui.planning.lineup import Lineup
from dttui.planning.models import Finding, Plan
from dttui.planning.planner import plan
from dttui.preflight import room, spares
from dttui.preflight.nodes import CheckedHost
from dttui.preflight.preflight import Preflight, Replan
from dttui.preflight.spares import SpareChecks
from dttui.spec.findings import Severity
from dttui.spec.models import Checkpoint, Recovery, Run
from dttui.transport.base import Nobody
from tests.fake_transport import FakeHost, FakeProcess, FakeTransport
from tests.unit.preflight.test_preflight import INVENTORY, Agent, facts_with, python_with, taken
from tests.unit.seed_cluster import environment, make_job

RECOVERY = {"on_node_failure": "replace", "max_restarts": 3, "checkpoint": Checkpoint(dir="/kept", shared=True)}
RUN = Run(script="train.py", workdir="/srv")


class Spared:
    """A job on `a` and `b` with the spare `c`, and agents on all of them."""

    plans_for_spares = 0
    most_plans_at_once = 0
    fault: Exception | None = None
    """Of planning with the spare `c`."""
    lineup = Lineup()
    """Who takes part instead of those that the job names."""

    def __init__(self, spare: Agent | FakeHost, inventory: Inventory = INVENTORY, **recovery: Any) -> None:
        self.job = make_job("a", "b", run=RUN, recovery=Recovery(**{**RECOVERY, "spares": ("c",), **recovery}))
        self.inventory = inventory
        spare_host = spare if isinstance(spare, FakeHost) else FakeHost(spare.play)
        self.hosts = {item.name: FakeHost(Agent().play) for item in inventory.environments} | {"c": spare_host}
        self.transport = FakeTransport(self.hosts)
        self.found: list[Finding] = []

    def replan_for(self, lineup: Lineup) -> Replan:
        def replan(known: Inventory, facts: dict[str, HostFacts], links: Sequence[MeasuredLink]) -> Plan:
            if lineup == self.lineup:
                job = lineup.apply(self.job, known)
                return plan(job, known, facts, links=newest(links), now=time.time())
            self.plans_for_spares += 1
            self.most_plans_at_once = max(self.most_plans_at_once, self.plans_for_spares)
            try:
                if self.fault is not None and any(seat and seat.environment == "c" for seat in lineup.seats.values()):
                    raise self.fault
                time.sleep(0.02)  # As a plan of many nodes takes, so that there may be others at once.
                return plan(lineup.apply(self.job, known), known, facts, links=newest(links), now=time.time())
            finally:
                self.plans_for_spares -= 1

        return replan

    async def check(self) -> list[tuple[str, str]]:
        """Check hosts and spares at once; return code and subject of what is told of spares, once all is."""
        checking = await self.begin()
        await asyncio.wait_for(checking, 20)
        assert all(item.severity is Severity.WARNING for item in self.found)
        return [(item.code, item.subject) for item in self.found]

    async def begin(self) -> asyncio.Task[None]:
        """Check the hosts to the end, and the spares beside; return what does the latter."""
        policy = plan(self.job, self.inventory).recovery
        made = plan(self.lineup.apply(self.job, self.inventory), self.inventory).model_copy(update={"recovery": policy})
        assert made.errors == ()
        known = {item.name: item for item in self.inventory.environments}
        nodes = [CheckedHost(known[node.name], node, self.transport, Nobody()) for node in made.nodes]
        own = Preflight(nodes, made, self.inventory, self.replan_for(self.lineup))
        checks = SpareChecks(made, self.inventory, self.replan_for, self.transport, Nobody(), lineup=self.lineup)
        checking = asyncio.create_task(checks.run(own, self.found.append))
        board = await asyncio.wait_for(own.run(), 20)
        assert board.errors == ()
        for node in nodes:
            await node.close()
        return checking


async def test_nothing_is_told_of_a_spare_that_is_like_the_hosts_and_no_connection_is_kept() -> None:
    job = Spared(agent := Agent())
    assert await job.check() == []
    assert {"facts", "telemetry", "paths", "ping"} <= set(agent.asked)
    assert all(connection.closed for connection in job.transport.connections)


async def test_a_spare_that_is_off_is_told_with_what_to_do() -> None:
    job = Spared(FakeHost(error=HostUnreachableError("c", "c: no answer", "Is it on?")))
    assert await job.check() == [("unreachable", "c")]
    assert job.found[0].message == "the spare c would be refused now: c: no answer"
    assert job.found[0].hint == "Is it on?"


async def test_what_its_preflight_would_refuse_and_warn_of_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "ROOM_WAIT_S", 0.05)
    job = Spared(Agent(facts=python_with(packages={}), telemetry=lambda _: taken(1, True)))
    assert sorted(await job.check()) == [("gpus-taken", "c"), ("package-missing", "c")]
    assert all(item.message.startswith("the spare c would be refused now: c") for item in job.found)


async def test_versions_that_are_not_those_of_the_hosts_are_told() -> None:
    job = Spared(Agent(facts=python_with(packages={"torch": "2.12.1"}, nccl="2.26.2")))
    assert await job.check() == [("drift", "torch"), ("nccl-drift", "c")]
    assert job.found[0].message == "the hosts have different versions of torch: most 2.13.0, c: 2.12.1"
    assert "the spare c would be refused now: the hosts have different versions of NCCL" in job.found[1].message


async def test_a_spare_is_checked_in_the_place_of_one_that_stands_for_a_host_which_the_job_names() -> None:
    job = Spared(Agent(facts=python_with(packages={})), with_spares("other"))
    job.lineup = Lineup().changed({"a": "other"}, plan(job.job, job.inventory))
    assert await job.check() == [("package-missing", "c")]


async def test_a_spare_whose_host_has_fewer_gpus_than_a_place_needs_is_told() -> None:
    small = environment("c", address="10.0.0.3", python="/py")
    inventory = Inventory(environments=(*INVENTORY.environments[:2], small))
    job = Spared(Agent(facts=facts_with(gpus=[])), inventory)
    codes = await job.check()
    assert {subject for _code, subject in codes} == {"c"}
    assert codes


async def test_a_spare_that_hangs_holds_up_no_host_and_is_waited_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Spared(Agent(facts=None))
    checking = await job.begin()
    assert not checking.done()
    checking.cancel()
    await asyncio.gather(checking, return_exceptions=True)
    assert all(connection.closed for connection in job.transport.connections)
    monkeypatch.setattr(spares, "SPARE_S", 0.05)
    job = Spared(Agent(facts=None))
    assert await job.check() == [("unchecked", "c")]


@pytest.mark.parametrize("other", [{"on_node_failure": "restart"}, {"max_restarts": 0}])
async def test_spares_that_take_nobodys_place_are_not_asked(other: dict[str, Any]) -> None:
    job = Spared(agent := Agent(), **other)
    assert await job.check() == []
    assert agent.asked == []


def with_spares(*names: str) -> Inventory:
    more = (environment(name, gpus=2, address=f"10.0.1.{i}", python="/py") for i, name in enumerate(names, 1))
    return Inventory(environments=(*INVENTORY.environments, *more))


@pytest.mark.parametrize("fault", [FileNotFoundError(2, "No such file", "train.py"), ValueError("not a number")])
async def test_a_spare_that_cannot_be_planned_for_is_told_and_the_others_are_checked(fault: Exception) -> None:
    job = Spared(Agent(), with_spares("off"), spares=("c", "off"))
    job.fault = fault
    job.hosts["off"] = FakeHost(error=HostUnreachableError("off", "off: no answer"))
    job.transport = FakeTransport(job.hosts)
    assert sorted(await job.check()) == [("spare-unchecked", "c"), ("unreachable", "off")]
    (unchecked,) = (item for item in job.found if item.code == "spare-unchecked")
    assert unchecked.message == f"the spare c could not be checked: {type(fault).__name__}: {fault}"


@pytest.mark.usefixtures("unhurried")
async def test_many_spares_are_planned_for_two_at_a_time_and_no_wait_for_that_counts_against_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spares, "SPARE_S", 5.0)
    names = tuple(f"spare{number}" for number in range(12))
    job = Spared(Agent(), with_spares(*names), spares=("c", *names))
    await job.check()
    assert job.most_plans_at_once == 2
    assert "unchecked" not in {item.code for item in job.found}


async def test_no_spare_is_asked_before_the_hosts_of_the_job_were() -> None:
    job = Spared(agent := Agent())
    asked_before: list[list[str]] = []

    async def slow(process: FakeProcess) -> int:
        for _turn in range(1000):  # All that could be begun in the meantime is.
            await asyncio.sleep(0)
        asked_before.append([*agent.asked])
        return await Agent().play(process)

    job.hosts["b"] = FakeHost(slow)
    job.transport = FakeTransport(job.hosts)
    await job.check()
    assert asked_before[0] == []
    assert agent.asked != []
