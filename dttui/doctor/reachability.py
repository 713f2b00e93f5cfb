"""Whether hosts reach each other as training will: on a port of their range, and on any free one; each pair both ways.

It listens and connects by the agents, as a preflight does; a daemon that was started for that is ended again. Where
there are many hosts, each tries its neighbours in the order of the inventory: a firewall that stands between two
networks is seen from any host of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dtagent.protocol.probes import (
    MAX_TARGETS,
    TOKEN_BYTES,
    HushRequest,
    ListenReply,
    ListenRequest,
    Reached,
    ReachOutcome,
    ReachReply,
    ReachRequest,
    ReachTarget,
)
from dtagent.protocol.rpc import ErrorCode

from dttui.doctor.examination import Examined
from dttui.errors import AgentError, HostError
from dttui.fleet.deployment.remote_program import Program, ask_host
from dttui.inventory.models import Environment
from dttui.preflight.node_reachability import CALL_MARGIN_S, HUSH_S, LISTEN_S, PROBE_S, Listening, no_free_port
from dttui.rpc.client import AgentClient
from dttui.spec.findings import Finding
from dttui.transport.base import CONNECT_TIMEOUT_S, Prompter, Transport
from dttui.transport.deadline import within

RETIRE_S = 30.0
MOST_OTHERS = 12
"""Hosts that each tries to reach: with 13 hosts or fewer all pairs are tried."""


@dataclass(frozen=True)
class Pair:
    """One host's way to another."""

    source: str
    target: str
    address: str
    """Of the target, as it was tried."""
    ranged: Reached | None
    """On a port of the target's range; `None` where it could not listen on one."""
    free: Reached | None
    """On any free port."""

    @property
    def is_whole(self) -> bool:
        """Whether both were reached."""
        tried = [found for found in (self.ranged, self.free) if found is not None]
        return bool(tried) and all(found.outcome is ReachOutcome.REACHED for found in tried)


@dataclass
class Reachability:
    """What was tried."""

    pairs: list[Pair] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """Of hosts without a free port."""
    silent: dict[str, HostError] = field(default_factory=dict)
    """Host → why its agent did not take part."""
    is_partial: bool = False
    """Whether each host tried its neighbours alone."""


@dataclass
class _Host:
    environment: Environment
    address: str
    client: AgentClient
    had_daemon: bool
    ranged: Listening | None = None
    free: Listening | None = None


async def try_all(hosts: Sequence[Examined], transport: Transport, prompter: Prompter) -> Reachability:
    """Let hosts try each other that have an agent.

    Args:
        hosts: what they said.
        transport: how they are reached.
        prompter: who is asked for what it takes to log in.
    """
    result = Reachability()
    opened: dict[str, _Host] = {}

    async def open_one(told: Examined) -> None:
        environment = told.environment
        try:
            client = await AgentClient.connect(environment, transport, prompter, CONNECT_TIMEOUT_S)
        except HostError as error:
            result.silent[environment.name] = error
            return
        opened[environment.name] = host = _Host(environment, told.address, client, told.has_daemon)
        try:
            host.free = await _listen(client, None)
            host.ranged = await _listen(client, environment.ports)
        except AgentError as error:
            if error.code == ErrorCode.REFUSED:
                result.findings.append(no_free_port(environment.name, environment.ports))
            else:
                result.silent[environment.name] = error
        except HostError as error:
            result.silent[environment.name] = error

    try:
        await asyncio.gather(*(open_one(told) for told in hosts))
        names = [told.name for told in hosts if told.name in opened]
        result.is_partial = len(names) > MOST_OTHERS + 1
        found = await asyncio.gather(*(_from(opened, name, _others(names, name)) for name in names))
        for name, (pairs, failure) in zip(names, found, strict=True):
            result.pairs += pairs
            if failure is not None:
                result.silent[name] = failure
    finally:
        await asyncio.gather(*(_close(host) for host in opened.values()))
    return result


def _others(names: Sequence[str], name: str) -> list[str]:
    """Return whom a host tries: all, or its neighbours on both sides."""
    if len(names) <= MOST_OTHERS + 1:
        return [other for other in names if other != name]
    place = names.index(name)
    steps = [step for near in range(1, MOST_OTHERS // 2 + 1) for step in (near, -near)]
    return [names[(place + step) % len(names)] for step in steps]


async def _listen(client: AgentClient, ports: tuple[int, int] | None) -> Listening:
    token = secrets.token_hex(TOKEN_BYTES)
    reply = await client.call("listen", ListenRequest(token, LISTEN_S, ports), ListenReply, CALL_MARGIN_S)
    return Listening(token, reply.port)


async def _from(opened: Mapping[str, _Host], name: str, others: Sequence[str]) -> tuple[list[Pair], HostError | None]:
    """Let one host try others, some at a time."""
    pairs: list[Pair] = []
    each = MAX_TARGETS // 2
    for start in range(0, len(others), each):
        tried = [opened[other] for other in others[start : start + each]]
        ways = [(host, to) for host in tried for to in (host.ranged, host.free) if to is not None]
        targets = [ReachTarget(host.address, to.port, to.token, pings=1) for host, to in ways]
        try:
            reply = await opened[name].client.call(
                "reach", ReachRequest(targets, PROBE_S), ReachReply, PROBE_S + CALL_MARGIN_S
            )
        except HostError as error:
            return pairs, error
        results = {id(to): reached for (_host, to), reached in zip(ways, reply.results, strict=False)}
        for host in tried:
            ranged, free = results.get(id(host.ranged)), results.get(id(host.free))
            pairs.append(Pair(name, host.environment.name, host.address, ranged, free))
    return pairs, None


async def _close(host: _Host) -> None:
    for listening in (host.ranged, host.free):
        if listening is not None:
            with contextlib.suppress(HostError):
                await host.client.call("hush", HushRequest(listening.token), dict, HUSH_S)
    with contextlib.suppress(HostError, asyncio.TimeoutError):
        if not host.had_daemon:
            request = {"action": "retire", "root": host.environment.agent_root}
            await within(ask_host(host.client.connection, request, program=Program.AGENTS), RETIRE_S)
    with contextlib.suppress(HostError):
        await host.client.close()
