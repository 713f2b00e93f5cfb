"""Deployments to several hosts at a time."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import dtagent

from dttui.errors import AgentError, HostUnreachableError
from dttui.fleet.deployment.deploy import agent_digest, deploy_all
from dttui.fleet.deployment.outcomes import AgentStatus, Deployment
from dttui.fleet.deployment.remove import remove_all
from dttui.fleet.deployment.status import status_all
from dttui.fleet.deployment.wheel_source import WheelSource
from dttui.fleet.deployment.wheels import Requirement, build_agent_wheel
from dttui.inventory.models import Environment
from dttui.rpc.client import AgentClient
from dttui.transport.local import LocalTransport
from tests.fake_transport import FakeHost, FakeProcess, FakeTransport
from tests.integration.deploy_fixtures import (
    PROBE,
    Nobody,
    answering,
    here,
    is_gone,
    play_silence,
)
from tests.waiting import PATIENCE_S


async def test_several_hosts_each_end_in_their_own_way_and_in_their_order(source: WheelSource) -> None:
    digest = agent_digest(source, "x86_64")
    transport = FakeTransport(
        {
            "done": answering({"result": {**PROBE, "current": digest, "version": "0.1.0"}}),
            "musl": answering({"result": {**PROBE, "libc": ""}}),
        }
    )
    environments = [Environment(name=name, host="192.0.2.1") for name in ("down", "done", "musl")]
    said: list[tuple[str, str]] = []

    outcomes = await deploy_all(
        environments,
        transport,
        Nobody(),
        source=source,
        on_progress=lambda name, message: said.append((name, message)),
    )

    down, done, musl = outcomes
    assert isinstance(down, HostUnreachableError)
    assert isinstance(done, Deployment)
    assert (done.host, done.changed, done.digest) == ("done", False, digest)
    assert isinstance(musl, AgentError)
    assert musl.message.startswith("musl: its C library is not glibc")
    assert all(connection.closed for connection in transport.connections)
    assert ("done", "looking at the host") in said


async def test_a_host_that_falls_silent_is_given_up_and_its_connection_closed(source: WheelSource) -> None:
    transport = FakeTransport({"silent": FakeHost(play_silence)})
    environment = Environment(name="silent", host="192.0.2.1")

    (outcome,) = await deploy_all([environment], transport, Nobody(), source=source, deadline_s=0.2)

    assert isinstance(outcome, HostUnreachableError)
    assert outcome.message == "silent: not done within 0.2 s"
    assert transport.connections[0].closed


async def test_no_more_hosts_are_worked_on_at_a_time_than_asked_for(source: WheelSource) -> None:
    at_work: set[str] = set()
    most = 0

    async def play(process: FakeProcess) -> int:
        nonlocal most
        at_work.add(process.environment.name)
        most = max(most, len(at_work))
        await asyncio.sleep(0)
        at_work.remove(process.environment.name)
        return 1

    hosts = [f"gpu{number}" for number in range(6)]
    environments = [Environment(name=name, host="192.0.2.1") for name in hosts]
    transport = FakeTransport(dict.fromkeys(hosts, FakeHost(play)))

    outcomes = await deploy_all(environments, transport, Nobody(), source=source, concurrency=2)

    assert [outcome.host for outcome in outcomes] == hosts
    assert most == 2


async def test_the_daemon_of_the_version_before_ends_and_the_new_one_takes_over(
    host: Path, wheelhouse: Path, requirements: tuple[Requirement, ...], tmp_path: Path
) -> None:
    package = Path(shutil.copytree(Path(dtagent.__file__).parent, tmp_path / "dtagent"))
    (package / "extra.py").write_text("new = True\n")
    newer = WheelSource(wheelhouse, requirements, build_agent_wheel(requirements, package))
    transport = LocalTransport([str(host / "current" / "bin" / "python"), "-I", "-m", "dtagent", "connect"])
    said: list[str] = []

    for _twice in range(2):  # The first time no daemon is there.
        await deploy_all(
            [here(host)], transport, Nobody(), source=newer, on_progress=lambda _name, message: said.append(message)
        )
        client = await AgentClient.connect(here(host), transport, Nobody(), PATIENCE_S)
        await client.close()
        newer = WheelSource(wheelhouse, requirements, build_agent_wheel(requirements))
        said.append("done")

    taking_over = "letting the new version take over"
    assert said.count(taking_over) == 1
    assert said.index(taking_over) > said.index("done")
    (seen,) = await status_all([here(host)], transport, Nobody(), source=newer)
    assert isinstance(seen, AgentStatus)
    assert seen.is_current
    assert seen.seen.daemon is not None
    assert seen.seen.daemon.digest == seen.seen.probe.current
    await remove_all([here(host)], transport, Nobody())
    assert is_gone(host)
