"""`dttui agents status`: what agent is on each host, what it does and whether it is this dttui's. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dttui.errors import HostError
from dttui.fleet.deployment.deploy import agent_digest, decode
from dttui.fleet.deployment.each_host import Visit, on_each
from dttui.fleet.deployment.outcomes import AgentStatus, Inspection
from dttui.fleet.deployment.remote_program import Program, ask_host
from dttui.fleet.deployment.wheel_source import WheelSource
from dttui.fleet.waiting import OnWait
from dttui.inventory.models import Environment
from dttui.transport.base import Prompter, Transport

DEADLINE_S = 60.0


async def inspect(visit: Visit) -> Inspection:
    """Ask one host. Raises HostError."""
    request = {"action": "inspect", "root": visit.connection.environment.agent_root}
    answer = await ask_host(visit.connection, request, program=Program.AGENTS)
    return decode(visit.host, Inspection, answer.result)


async def status_all(
    environments: Sequence[Environment],
    transport: Transport,
    prompter: Prompter,
    *,
    source: WheelSource | None = None,
    on_wait: OnWait | None = None,
    on_done: Callable[[str, AgentStatus | HostError], None] = lambda host, result: None,
) -> list[AgentStatus | HostError]:
    """Ask hosts, many at a time; return what each told, in their order.

    Args:
        environments: the hosts.
        transport: how to reach them.
        prompter: asked for passwords and new host keys while connecting.
        source: what this dttui would install; nothing is fetched.
        on_wait: told meanwhile who is waited for.
        on_done: told a host's name and what came of it, as soon as that is known.
    """
    ours = source or WheelSource()

    async def act(visit: Visit) -> AgentStatus:
        seen = await inspect(visit)
        return AgentStatus(visit.host, seen, seen.probe.current == agent_digest(ours, seen.probe.architecture))

    return await on_each(
        environments, transport, prompter, act, deadline_s=DEADLINE_S, on_wait=on_wait, on_done=on_done
    )
