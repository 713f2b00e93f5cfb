"""The live state of an inventory's environments: one conversation each, kept up, so that a screen only has to look."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from dtagent.protocol.facts import FactsRequest, HostFacts
from dtagent.protocol.rpc import ErrorCode
from dtagent.protocol.telemetry import HostSample

from dttui.agent_words import agent_text
from dttui.errors import REFUSALS, AgentError, AgentGoneError, BrokenProtocolError, HostError
from dttui.fleet.occupants import Occupant, occupants_of, occupants_text
from dttui.fleet.states import EnvironmentState
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.rpc.client import AgentClient
from dttui.rpc.sample_rows import ReceivedSample
from dttui.sanitize import clean
from dttui.transport.base import CONNECT_TIMEOUT_S, Prompter, Transport
from dttui.transport.deadline import within

LOG = logging.getLogger("dttui.fleet")
FACTS_TIMEOUT_S = 60.0
TELEMETRY_WAIT_S = 10.0
AGES_S = 20.0
"""How often it is looked anew at what changes with time alone."""
RETRY_S = (5.0, 10.0, 20.0, 40.0, 60.0)
"""Between attempts to reach a host, growing."""
RETRIES_PER_S = 100
"""Of all hosts together, on average at most: each takes about a millisecond."""
MOST_WITHOUT_AGENT_S = 20.0
"""Longest between attempts where only the agent is missing: one may be deployed meanwhile."""


@dataclass(frozen=True)
class EnvironmentStatus:
    """What is known of one environment now."""

    environment: Environment
    state: EnvironmentState = EnvironmentState.CONNECTING
    reason: str = ""
    hint: str = ""
    facts: HostFacts | None = None
    reading: ReceivedSample | None = None
    """Its newest sample, as it came."""
    since: float = 0.0
    """Unix time at which it came into this state."""
    heard_at: float | None = None
    """Unix time at which its agent said something last; `None` where it has not yet."""
    agent_version: str | None = None
    """Of the agent that serves there, as it said last; `None` where none does, or none has said."""
    protocol: int | None = None
    """Which it was talked to in."""
    is_foreign: bool = False
    """Whether the agent there and this dttui have no common protocol."""
    standing: object = field(default_factory=object, compare=False)
    """What the state of a host that is watched, and who has its GPUs, were told from; the same object while that is."""

    @cached_property
    def sample(self) -> HostSample | None:
        """Its newest sample, for whoever looks at it: of thousands of hosts few are."""
        return self.reading.sample if self.reading is not None else None

    @property
    def jobs(self) -> tuple[str, ...]:
        """Jobs of dttui that run there."""
        return tuple(self.reading.pids) if self.reading is not None else ()

    @property
    def occupants(self) -> list[Occupant]:
        """Who has GPUs there, or runs jobs."""
        return occupants_of(self.sample) if self.sample else []

    @property
    def is_usable(self) -> bool:
        """Whether a job could start there."""
        return self.state in (EnvironmentState.IDLE, EnvironmentState.BUSY)

    @property
    def is_away(self) -> bool:
        """Whether a job could not start there now, as far as is known."""
        return not self.is_usable and self.state is not EnvironmentState.CONNECTING


class Fleet:
    """Watches environments until it is closed; reads are instant."""

    def __init__(
        self,
        environments: Iterable[Environment],
        transport: Transport,
        prompter: Prompter,
        known: Mapping[str, HostFacts] | None = None,
        keep: Callable[[Iterable[tuple[Environment, HostFacts]]], None] | None = None,
    ) -> None:
        """Watch environments.

        Args:
            environments: the hosts.
            transport: how they are reached.
            prompter: who answers their questions.
            known: of some, what they said of themselves before.
            keep: is called with what they have said of themselves, once nothing is watched any more.
        """
        self._transport = transport
        self._prompter = prompter
        self._keep = keep
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._context = contextvars.copy_context()
        """Of whom it watches for: the language of reasons, the variables that count."""
        self._settled = asyncio.Event()
        """Set once none is pending."""
        self.statuses: dict[str, EnvironmentStatus] = {
            item.name: EnvironmentStatus(item, facts=(known or {}).get(item.name), since=time.time())
            for item in environments
        }
        """By name, in the inventory's order."""
        self.heard: dict[str, HostFacts] = {}
        """What hosts have said of themselves since the start, by name."""
        self.pending = set(self.statuses)
        """Those of which it is not known yet whether they are well."""

    def start(self) -> None:
        """Begin to watch all environments."""
        for key in self.statuses:
            self._tasks[key] = self._context.run(asyncio.create_task, self._watch(key))

    def retry(self, key: str, *, drops: bool = False) -> None:
        """Try to reach an environment again now; one that is idle only where its conversation is to be dropped."""
        if key in self._tasks and (drops or self.statuses[key].state is not EnvironmentState.IDLE):
            self._tasks[key].cancel()
            self._tasks[key] = self._context.run(asyncio.create_task, self._watch(key))

    async def settle(self, timeout_s: float) -> None:
        """Wait until each environment is known to be well or not, or the time is up."""
        if self.pending:
            with contextlib.suppress(asyncio.TimeoutError):
                await within(self._settled.wait(), timeout_s)

    async def close(self) -> None:
        """Let go of all connections."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._keep is not None:
            self._keep((self.statuses[name].environment, facts) for name, facts in self.heard.items())

    async def _watch(self, key: str) -> None:
        failures = 0
        while True:
            try:
                await self._follow(key)
                failures = 0
            except HostError as error:
                known = self.statuses[key].reading is not None
                failures = 0 if known and not isinstance(error, BrokenProtocolError) else failures
                self._set(
                    key, state_of(error), reason=error.message, hint=error.hint, reading=None, **_agent_after(error)
                )
            except Exception as error:  # Else its row would say for ever that it is being looked at.
                LOG.debug("internal error", exc_info=True)
                reason = _("{host}: internal error: {error}").format(host=key, error=f"{type(error).__name__}: {error}")
                self._set(key, EnvironmentState.UNREACHABLE, reason=reason, hint="", reading=None)
            delay_s = retry_delay_s(failures, self.statuses[key].state)
            await asyncio.sleep(max(delay_s, len(self.statuses) / RETRIES_PER_S))
            failures += 1

    async def _follow(self, key: str) -> None:
        environment = self.statuses[key].environment
        # The transport paces: how many dial and log in at a time is nothing that one who looks can know.
        client = await AgentClient.connect(environment, self._transport, self._prompter, CONNECT_TIMEOUT_S)
        try:
            if client.hello is not None:
                said = {"agent_version": clean(client.hello.agent_version), "protocol": client.hello.version}
                self._set(key, self.statuses[key].state, is_foreign=False, **said)
            request = FactsRequest([environment.python or "python3"])
            facts = await client.call("facts", request, HostFacts, FACTS_TIMEOUT_S)
            self.heard[key] = facts
            self._set(key, self.statuses[key].state, facts=facts, heard_at=time.time())
            after: int | None = None
            judged: object = None
            while True:
                samples = await client.telemetry(after, TELEMETRY_WAIT_S)
                if samples:
                    after, reading = samples[-1].seq, samples[-1]
                    told = _standing(reading)
                    if told != judged:
                        judged = told
                        state, reason = _judge(reading.sample)
                    self._set(
                        key, state, reason=reason, hint="", reading=reading, standing=judged, heard_at=time.time()
                    )
        finally:
            with contextlib.suppress(HostError):
                await client.close()

    def _set(self, key: str, state: EnvironmentState, **changes: object) -> None:
        before = self.statuses[key]
        since = before.since if state is before.state else time.time()
        after = replace(before, state=state, since=since, **changes)  # type: ignore[arg-type]  # named fields
        self.statuses[key] = after
        if key in self.pending and not _is_pending(after):
            self.pending.discard(key)
            if not self.pending:
                self._settled.set()


def facts_of(statuses: Mapping[str, EnvironmentStatus]) -> dict[str, HostFacts]:
    """Return what the agents said of their hosts, by environment name."""
    return {key: status.facts for key, status in statuses.items() if status.facts is not None}


def retry_delay_s(failures: int, state: EnvironmentState) -> float:
    """Return how long to wait after an attempt and so many failures before it."""
    delay_s = RETRY_S[min(failures, len(RETRY_S) - 1)]
    return min(delay_s, MOST_WITHOUT_AGENT_S) if state is EnvironmentState.NO_AGENT else delay_s


def _is_pending(status: EnvironmentStatus) -> bool:
    return status.state is EnvironmentState.CONNECTING or (status.is_usable and status.reading is None)


def _standing(reading: ReceivedSample) -> object:
    """Return what a host's state, and who has its GPUs, are told from: while it is the same, so are they.

    For how long and until when somebody has them changes by itself: that is told anew each `AGES_S`.
    """
    holds, pids, processes = reading.host("holds"), reading.pids, reading.gpus("processes")
    is_taken = bool(holds or pids) or any(processes)
    moment = reading.time // AGES_S if is_taken else None
    return holds, pids, processes, reading.gpus("index"), reading.gpus("error"), moment


def _judge(sample: HostSample) -> tuple[EnvironmentState, str]:
    broken = [f"GPU {gpu.index}: {agent_text(gpu.error, gpu.error_notice)}" for gpu in sample.gpus if gpu.error]
    if broken:
        return EnvironmentState.UNHEALTHY, "; ".join(broken)
    who = occupants_text(sample)
    return (EnvironmentState.BUSY, who) if who else (EnvironmentState.IDLE, "")


def _agent_after(error: HostError) -> dict[str, object]:
    """Return what is known of a host's agent after an error; of one that is only out of reach all that was."""
    if isinstance(error, AgentGoneError):
        return {"agent_version": None, "protocol": None, "is_foreign": False}
    is_foreign = isinstance(error, AgentError) and error.code == ErrorCode.VERSION
    return {"agent_version": None, "protocol": None, "is_foreign": True} if is_foreign else {}


def state_of(error: HostError) -> EnvironmentState:
    """Return how an environment stands whose host is reached no more, by the error."""
    if isinstance(error, AgentError):
        return EnvironmentState.NO_AGENT
    if isinstance(error, REFUSALS):
        return EnvironmentState.REFUSED
    return EnvironmentState.UNREACHABLE
