"""Asks hosts, many at a time and each within a deadline, what a check-up wants to know. Changes nothing there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from dtagent.protocol.facts import FactsRequest, HostFacts, UserLimits
from dtagent.protocol.telemetry import HostSample
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from dttui.errors import HostError
from dttui.fleet.deployment.deploy import agent_digest, decode
from dttui.fleet.deployment.each_host import Visit, on_each
from dttui.fleet.deployment.outcomes import AgentStatus, Inspection
from dttui.fleet.deployment.refusals import refused
from dttui.fleet.deployment.remote_program import Program, ask_host
from dttui.fleet.deployment.wheel_source import WheelSource
from dttui.fleet.waiting import OnWait
from dttui.inventory.models import Environment, Reach
from dttui.planning.models import DEFAULT_PYTHON
from dttui.preflight.room import read_sample
from dttui.rpc.client import AgentClient
from dttui.transport.base import Prompter, Transport

HOST_S = 60.0
"""For each host, once it is connected to."""
FACTS_TIMEOUT_S = 30.0
_FACTS = TypeAdapter(HostFacts)


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class LooseFile(_Answer):
    """A file or directory that ssh or sshd refuses for its permissions."""

    path: str
    mode: str
    """In octal."""
    change: str
    """What chmod is to be told."""


class MachineSeen(_Answer):
    """What can be told of a machine without an agent; see `doctor_program.observe`."""

    hostname: str
    user: str
    uid: int
    own_addresses: list[str] | None
    """What its own name resolves to; `None` where it has no address."""
    own_name_s: float
    loopback_lines: list[str]
    """Addresses of loopback that /etc/hosts gives its own name."""
    client: str
    """Where the login came from."""
    client_name_s: float | None
    limits: dict[str, list[int | None]]
    """Soft and hard, of what a login starts."""
    shm_mib: list[int] | None
    """Size and free."""
    cpus: int
    sshd: dict[str, str]
    """Options of its SSH server, by name in small letters, as far as its files can be read."""
    loose: list[LooseFile]
    firewall: str | None
    """The tool by which its firewall would be told."""

    @property
    def user_limits(self) -> UserLimits:
        """The soft limits."""
        return UserLimits(**{name: soft for name, (soft, _hard) in self.limits.items()})


class _Examination(_Answer):
    agent: Inspection | None
    refusal: dict[str, object] | None
    facts: dict[str, object] | None
    mount: str
    seen: MachineSeen
    time: float
    took_s: float


@dataclass(frozen=True)
class Examined:
    """All that one host said."""

    environment: Environment
    seen: MachineSeen
    agent: AgentStatus | None
    """`None` where the place of the agent is refused."""
    refusal: HostError | None
    mount: str
    """Where the file system of the agent's directory is mounted."""
    facts: HostFacts | None
    """What its agent says; `None` where none runs."""
    sample: HostSample | None
    address: str
    """Where other hosts reach it."""
    began_s: float
    """How long it took until a command ran, the login itself left out."""
    offset_s: float
    """Its clock minus ours."""
    offset_within_s: float
    """The offset is known to lie within so much around."""
    silence: HostError | None = None
    """Why its agent has not answered, where one should."""

    @property
    def name(self) -> str:
        """The environment's."""
        return self.environment.name

    @property
    def can_serve(self) -> bool:
        """Whether an agent serves there, or would once somebody connects."""
        has_agent = self.agent is not None and self.agent.state in ("up-to-date", "outdated", "embedded")
        return (has_agent or self.is_embedded) and self.silence is None

    @property
    def is_embedded(self) -> bool:
        """Whether it is this machine, where dttui has an agent of its own that starts whenever it is wanted."""
        return self.environment.reach is Reach.LOCAL

    @property
    def has_daemon(self) -> bool:
        """Whether an agent serves there now."""
        return self.agent is not None and self.agent.seen.daemon is not None


async def examine_all(
    environments: Sequence[Environment],
    transport: Transport,
    prompter: Prompter,
    on_wait: OnWait | None = None,
) -> list[Examined | HostError]:
    """Return what each host says, or why it says nothing, in their order."""
    ours = WheelSource()

    async def act(visit: Visit) -> Examined:
        return await _examine(visit, ours)

    return await on_each(environments, transport, prompter, act, deadline_s=HOST_S, on_wait=on_wait)


async def _examine(visit: Visit, ours: WheelSource) -> Examined:
    environment = visit.connection.environment
    python = environment.python or DEFAULT_PYTHON
    request = {"action": "examine", "root": environment.agent_root, "pythons": [python]}
    before, began = time.time(), time.monotonic()
    answer = await ask_host(visit.connection, request, program=Program.DOCTOR)
    elapsed_s = time.monotonic() - began
    told = decode(visit.host, _Examination, answer.result)
    early_s = max(0.0, elapsed_s - told.took_s)
    agent, facts, sample, silence = None, None, None, None
    if told.agent is not None:
        digest = agent_digest(ours, told.agent.probe.architecture)
        agent = AgentStatus(visit.host, told.agent, told.agent.probe.current == digest)
    if told.facts is not None:
        with contextlib.suppress(ValidationError):
            facts = _FACTS.validate_python(told.facts)
    is_here = environment.reach is Reach.LOCAL and told.refusal is None
    if is_here or (agent is not None and agent.seen.daemon is not None):
        try:
            facts, sample = await _ask_agent(visit, python)
        except HostError as error:
            silence = error
    return Examined(
        environment,
        told.seen,
        agent,
        refused(visit.host, dict(told.refusal)) if told.refusal is not None else None,
        told.mount,
        facts,
        sample,
        environment.address or visit.connection.address,
        early_s,
        told.time - before - early_s / 2,
        early_s / 2,
        silence,
    )


async def _ask_agent(visit: Visit, python: str) -> tuple[HostFacts, HostSample | None]:
    """Return what a daemon that serves says. Raises HostError."""
    client = await AgentClient.over(visit.connection)
    try:
        facts = await client.call("facts", FactsRequest([python]), HostFacts, FACTS_TIMEOUT_S)
        return facts, await read_sample(client, facts, None) if facts.gpus else None
    finally:
        await client.leave()
