"""`dttui agents status`: what agent is on each host, what it does and whether it is this dttui's. Changes nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from dttui.errors import HostError
from dttui.fleet.deployment.deploy import HostProbe, agent_digest, decode
from dttui.fleet.deployment.each_host import Visit, on_each
from dttui.fleet.deployment.remote_program import Program, ask_host
from dttui.fleet.deployment.wheel_source import WheelSource
from dttui.fleet.waiting import OnWait
from dttui.inventory.models import Environment
from dttui.sanitize import clean
from dttui.transport.base import Prompter, Transport

DEADLINE_S = 60.0
_TAKEN = re.compile(r"/var/tmp/dtagent-[0-9]+-[0-9a-f]{32}")  # noqa: S108 - as a host says it


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class WarmSeen(_Answer):
    """A process that keeps torch imported for warm starts."""

    python: str
    """Interpreter."""
    pid: int
    memory_mib: int


class DaemonSeen(_Answer):
    """The daemon that serves on a host."""

    pid: int
    since: float | None
    """Unix time of its start, the host's clock."""
    digest: str | None
    """The version it runs from, which may be an older one than the current."""
    warm: list[WarmSeen] = []
    """What it keeps for warm starts."""


class AttemptSeen(_Answer):
    """An attempt of a job that is known on a host."""

    job: str
    attempt: int
    state: str
    """`running`, `prepared`, `left` (processes without their supervisor), `ended` or `discarded`."""

    @property
    def is_busy(self) -> bool:
        """Whether it stands in the way of removing the agent."""
        return self.state in ("running", "prepared", "left")


class OtherVersion(_Answer):
    """A version that is not the current one."""

    digest: str
    in_use: bool
    """Whether a process runs from it: the supervisor of a job that it started."""


class Inspection(_Answer):
    """What a host told."""

    probe: HostProbe
    agent_python: str | None
    protocols: list[int]
    """Versions of the protocol that the agent speaks."""
    logout_kills: bool | None
    """Whether a job started over a login as ours would end with it; `None` where the agent is too old to say."""
    daemon: DaemonSeen | None
    attempts: list[AttemptSeen]
    others: list[OtherVersion]


@dataclass(frozen=True)
class AgentStatus:
    """The agent of one host."""

    host: str
    seen: Inspection
    is_current: bool
    """Whether it is what this dttui would install there."""

    @property
    def state(self) -> str:
        """`up-to-date`, `outdated`, `broken`, `none`, or `embedded`: dttui's own on this machine, not installed."""
        if self.seen.probe.current is None:
            return "none" if self.seen.daemon is None else "embedded"
        if self.seen.probe.version is None:
            return "broken"
        return "up-to-date" if self.is_current else "outdated"

    @property
    def is_elsewhere(self) -> bool:
        """Whether it lives in a place that was taken because the usual one is not to be had."""
        return self.seen.probe.current is not None and _TAKEN.fullmatch(self.seen.probe.root) is not None

    def document(self) -> dict[str, Any]:
        """Return it as data."""
        seen = self.seen
        return {
            "host": self.host,
            "outcome": self.state,
            "version": seen.probe.version,
            "digest": seen.probe.current,
            "root": seen.probe.root if seen.probe.current is not None else None,
            "protocols": seen.protocols,
            "python": seen.agent_python,
            "daemon": seen.daemon.model_dump() if seen.daemon is not None else None,
            "jobs": [item.model_dump() for item in seen.attempts],
            "tools": [item.model_dump() for item in seen.probe.tools],
            "other_versions": [item.model_dump() for item in seen.others],
            "logout_kills": seen.logout_kills,
            "broken": clean(seen.probe.broken),
        }


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
) -> list[AgentStatus | HostError]:
    """Ask hosts, many at a time; return what each told, in their order.

    Args:
        environments: the hosts.
        transport: how to reach them.
        prompter: asked for passwords and new host keys while connecting.
        source: what this dttui would install; nothing is fetched.
        on_wait: told meanwhile who is waited for.
    """
    ours = source or WheelSource()

    async def act(visit: Visit) -> AgentStatus:
        seen = await inspect(visit)
        return AgentStatus(visit.host, seen, seen.probe.current == agent_digest(ours, seen.probe.architecture))

    return await on_each(environments, transport, prompter, act, deadline_s=DEADLINE_S, on_wait=on_wait)
