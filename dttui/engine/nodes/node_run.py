"""One node of one attempt, seen from the login node: the conversation with its agent. What comes back is `record`'s."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import EndReason, NodeState, NodeStatus, StopRequest
from dtagent.protocol.logs import FollowReply, FollowRequest
from dtagent.protocol.meeting import Numbering
from dtagent.protocol.rpc import ErrorCode

from dttui.engine.awake import has_just_woken
from dttui.engine.nodes.node_record import NodeRecord, Shared
from dttui.errors import (
    AgentError,
    AgentGoneError,
    AuthenticationError,
    BrokenProtocolError,
    HostError,
    HostKeyError,
    HostUnreachableError,
    without_frames,
)
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.jobs import JobDirectory
from dttui.planning.models import PlannedNode
from dttui.rpc.client import AgentClient
from dttui.rpc.sample_rows import ReceivedSample
from dttui.timestamps import elapsed_s, timestamp_or
from dttui.transport.base import CONNECT_TIMEOUT_S, Prompter, Transport
from dttui.transport.deadline import within

RECONNECT_S = 3.0
PERSON_RETRY_S = 60.0
"""Between two logins that fail for want of a person or a credential: more of them would lock the account."""
LOG_COST = 3.0
"""What an answer with logs costs in all, for each second in which they are stored: it is also read and decoded."""
MOST_RECONNECT_S = 60.0
"""To an agent that has broken the protocol again and again: each time it is left alone for twice as long."""
DISK_RETRY_S = 5.0
HURRIED_DRAIN_S = 20.0
"""How long the logs of a node that ended may still take once a stop was forced."""
SILENT_DRAIN_S = 60.0
"""How long a host that falls silent after the end of its node is waited for, for the rest of the logs."""
FOLLOW_WAIT_S = 10.0
LEAST_PATIENCE_S = 5.0
"""How long an answer with logs may take that comes bit by bit over a slow link, however short a silence may be."""
LEAST_FOLLOW_S = 0.05
"""From one question to the next where an answer brings little: an agent that answers at once must keep nobody busy."""
LITTLE_BYTES = 4096
AWAKE_RETRY_S = 0.5
SAMPLE_PAUSE_S = 0.5
"""Between two requests for samples: a host takes one a second, and one that says otherwise must keep nobody busy."""
RECORDS_S = 12.0
"""For what ran on a host to be known there again, once its records were removed."""
MAX_REFUSALS = 5
"""Times in a row that an agent may answer with an error before the node is given up."""
RETRY_S = 0.5
"""Between two tries of what may be asked twice."""
Reply = TypeVar("Reply")


@dataclass
class NodeRun:
    """State of one node; `on_change` is called after every change that matters."""

    environment: Environment
    planned: PlannedNode
    key: AttemptKey
    directory: JobDirectory
    transport: Transport
    prompter: Prompter
    on_change: Callable[[], None]
    shared: Shared = field(default_factory=Shared)
    client: AgentClient | None = None
    status: NodeStatus | None = None
    silent_since: float | None = None
    """Unix time at which the link was lost; `None` while it is there."""
    heard_at: float = field(default_factory=time.time)
    """Unix time of the last word from it."""
    is_lost: bool = False
    """Given up: it could not be reached when it had to be."""
    agent_gone: AgentGoneError | None = None
    """Why nothing can be asked of it though the host itself answers; `None` where its agent is there."""
    needs_person: HostError | None = None
    """Why the host lets nobody in, where a credential or an answer is what it takes."""
    disk_trouble: OSError | None = None
    """Why what comes from it cannot be written here now."""
    hurries: bool = False
    """Whether the end is not to wait for logs that take long to fetch."""
    is_cut_short: bool = False
    """Whether the end did not wait for the rest of its logs: it was forced, or nothing could be had or kept of them."""
    clock_offset_s: float = 0.0
    told_to_end_at: float | None = None
    """Unix time, the host's clock, at which it was first told to end its part."""
    _numbering: Numbering | None = None
    _refusals: int = 0
    _unknown_since: float | None = None
    """By the monotonic clock: since when the agent knows nothing of an attempt that was started there."""
    _breaks: int = 0
    """Links in a row that the agent has ended by what no agent may say."""
    _broke_at: float = -math.inf
    """When it did so last, on the monotonic clock."""
    _retry: asyncio.Event = field(default_factory=asyncio.Event)
    _connecting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _connected: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while there is a `client`."""

    def __post_init__(self) -> None:
        self.record = NodeRecord(
            lambda: self.planned, self.key, self.directory, self.shared, lambda: self.on_change(), lambda: self.ranks
        )

    @property
    def name(self) -> str:
        """The environment's."""
        return self.planned.name

    @property
    def numbering(self) -> Numbering | None:
        """How torchrun has numbered its ranks last; `None` where that has not happened, or they are as planned."""
        told = self.status.numbering if self.status is not None and self.shared.is_elastic else None
        fits = told is not None and len(told.ranks) == len(self.planned.ranks)
        if told is not None and fits and told.world_size <= self.shared.world_size:
            self._numbering = told
        return self._numbering

    @property
    def ranks(self) -> tuple[int, ...]:
        """Its global ranks, in order of local rank."""
        return tuple(self.numbering.ranks) if self.numbering is not None else self.planned.ranks

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come from it."""
        return self.is_lost or (self.status is not None and self.status.state.is_final)

    @property
    def has_failed(self) -> bool:
        """Whether something of the attempt went wrong there."""
        status = self.status
        if status is None:
            return False
        bad_exit = any(item.exit_code != 0 for item in status.exits)
        is_bad_end = status.end_reason is EndReason.SELF_FENCED  # However well its processes took that.
        return bad_exit or is_bad_end or status.state in (NodeState.LOST, NodeState.UNKILLABLE)

    @property
    def has_succeeded(self) -> bool:
        """Whether all its processes ended with 0."""
        status = self.status
        ended = status is not None and status.state is NodeState.ENDED and bool(status.exits)
        return ended and not self.has_failed and not self.is_lost

    @property
    def serves_only(self) -> bool:
        """Whether it runs nothing but services, which end once all other nodes have ended well."""
        return self.planned.serves_only

    @property
    def is_clean(self) -> bool:
        """Whether it is known that nothing of the attempt runs there."""
        status = self.status
        if self.is_lost or status is None or status.leftovers:
            return False
        return status.state.is_final and status.state is not NodeState.UNKILLABLE

    @property
    def has_all_ranks(self) -> bool:
        """Whether every rank runs the user's code, or has already run it; of ranks of its own, whether that runs."""
        if self.planned.starts_own_ranks and self.status is not None:
            return self.status.state is not NodeState.PREPARED
        return self.status is not None and set(self.ranks) <= set(self.status.ranks_started)

    def here(self, moment: float) -> float:
        """Return a point in time of the host's clock on ours; where it tells of none, when it was last heard."""
        return timestamp_or(moment, self.heard_at + self.clock_offset_s) - self.clock_offset_s

    def learn(self, status: NodeStatus) -> None:
        """Take what the host has answered to any call; one that was overtaken on its way takes back no end."""
        is_overtaken = self.status is not None and self.status.state.is_final and not status.state.is_final
        if status != self.status and not is_overtaken:
            self.status = status
            self.on_change()

    async def connect(self) -> AgentClient:
        """Connect, or return the connection there is. Raises HostError."""
        async with self._connecting:
            if self.client is None:
                self.client = await AgentClient.connect(
                    self.environment, self.transport, self.prompter, CONNECT_TIMEOUT_S
                )
                self.clock_offset_s = self.client.clock_offset_s
                self._connected.set()
            return self.client

    async def await_status(self) -> NodeStatus:
        """Ask what has become of the attempt there, until the host answers. Raises AgentError where it refuses."""
        while True:
            try:
                status = await (await self.connect()).call("status", self.key, NodeStatus)
            except HostError as error:
                await self.lose_link(error)
                continue
            self.heard_at, self.silent_since, self.needs_person, self.agent_gone = time.time(), None, None, None
            self.learn(status)
            self.on_change()
            return status

    async def stop(self, *, force: bool) -> None:
        """Ask the host to end its part. Raises HostError."""
        client = await self.connect()
        self.told_to_end_at = self.told_to_end_at or time.time() + self.clock_offset_s
        request = StopRequest(self.key, force, node_rank=self.planned.node_rank)
        self.learn(await client.call("stop", request, NodeStatus))

    async def end_services(self) -> None:
        """Tell the host that nothing needs its services any more. Raises HostError."""
        request = StopRequest(self.key, services_only=True)
        self.learn(await (await self.connect()).call("stop", request, NodeStatus))

    async def end(self, *, force: bool) -> None:
        """Tell the host to end its part until it hears that, and follow it to its end.

        Raises:
            HostError: asking again is no use.
        """
        while True:
            try:
                await self.stop(force=force)
                break
            except HostError as error:
                if not is_undecided(error):
                    raise
            await self.drop_link()
            await asyncio.sleep(RECONNECT_S)
        await self.follow()

    async def retry_until_deadline(self, method: str, request: object, reply: type[Reply], deadline_s: float) -> Reply:
        """Ask what may be asked twice until there is an answer, over new connections where one is lost.

        Raises:
            HostUnreachableError: there was none within the deadline.
            HostError: asking again is no use.
        """
        last: HostError | None = None

        async def ask() -> Reply:
            nonlocal last
            while True:
                try:
                    return await (await self.connect()).call(method, request, reply, deadline_s)
                except HostError as error:
                    if not is_undecided(error):
                        raise
                    last = error
                await self.drop_link()
                await asyncio.sleep(RETRY_S)

        try:
            return await within(ask(), deadline_s)
        except asyncio.TimeoutError as error:
            if last is not None:
                raise last from error
            message = _("{host}: no answer within {seconds:g} s").format(host=self.name, seconds=round(deadline_s))
            raise HostUnreachableError(self.name, message) from error

    async def answer_within(self, method: str, request: object, reply: type[Reply], deadline_s: float) -> Reply | None:
        """Return what the host answers; `None` where it does not in time, or not at all."""

        async def ask() -> Reply:
            return await (await self.connect()).call(method, request, reply, deadline_s)

        try:
            return await within(ask(), deadline_s)
        except (asyncio.TimeoutError, HostError):
            return None

    async def drop_link(self) -> None:
        """Let go of a connection that is of no use any more; the next call makes another one."""
        client, self.client = self.client, None
        self._connected.clear()
        if client is not None:
            with contextlib.suppress(HostUnreachableError):
                await client.close()

    async def follow(self) -> None:
        """Fetch logs, metrics and status until the node's part is over, through any number of lost connections."""
        stamp = ""
        ended_at: float | None = None
        while not self.is_lost:
            try:
                client = await self.connect()
                asked_at = time.monotonic()
                reply = await self._ask_for_news(client, stamp)
                is_late = ended_at is not None and time.monotonic() - ended_at > HURRIED_DRAIN_S
                if is_late and (reply.chunks or reply.more):
                    self.record.break_off(reply)
                    self.is_cut_short = True
                    return
                began = time.thread_time()
                is_stored = self._store_if_there_is_room(reply)
                busy_s = time.thread_time() - began
                self.record.is_catching_up = self.record.is_catching_up and reply.more
            except HostError as error:
                await self.lose_link(error)
                if self._drains_in_vain():
                    self.is_cut_short = True
                    return
                continue
            stamp = reply.stamp
            self._note_answer()
            self.learn(reply.status)
            if reply.status.state.is_final:
                if not reply.chunks and not reply.more:
                    self.record.finish()
                    return
                if not is_stored:
                    self.is_cut_short = True
                    return
                if self.hurries:
                    ended_at = ended_at or time.monotonic()
            if not is_stored:
                await asyncio.sleep(DISK_RETRY_S)
            elif sum(len(chunk.data) for chunk in reply.chunks) < LITTLE_BYTES:
                await asyncio.sleep(asked_at + LEAST_FOLLOW_S - time.monotonic())
            else:
                await asyncio.sleep(LOG_COST * busy_s / self.shared.log_share)

    async def _ask_for_news(self, client: AgentClient, stamp: str) -> FollowReply:
        """Wait for something new of the node's part; at its end, and after silence, any answer is news."""
        heartbeat_s = self.shared.heartbeat_s
        usual_s = min(FOLLOW_WAIT_S, heartbeat_s / 3)
        request = FollowRequest(
            self.key,
            self.record.logs.offsets,
            stamp,
            0.0 if self.is_over or self.silent_since is not None else usual_s,
            max_bytes=client.flow_control.grant_bytes,
            wants_trainer=True,
            inodes=self.record.logs.inodes,
        )
        patience_s = max(heartbeat_s, LEAST_PATIENCE_S)
        return await client.call("follow", request, FollowReply, patience_s, quiet_s=heartbeat_s)

    def _note_answer(self) -> None:
        """Take back what silence, or refusals, had been taken for."""
        self._refusals, self._unknown_since, self.agent_gone = 0, None, None
        self.heard_at = time.time()
        self.needs_person = None
        if self.silent_since is not None:
            self.silent_since = None
            self.on_change()

    async def record_samples(self) -> None:
        """Write the host's telemetry to the job's directory until cancelled."""
        while True:
            await self._connected.wait()  # `follow` connects, and says so where it cannot.
            try:
                await self._take_samples(FOLLOW_WAIT_S)
                await asyncio.sleep(SAMPLE_PAUSE_S)
            except HostError:
                await asyncio.sleep(RECONNECT_S)

    async def catch_up_samples(self, until: float) -> None:
        """Write the telemetry that came while nobody followed, up to Unix time `until` there. Raises HostError."""
        while (newest := await self._take_samples(0.0)) and newest.time < until:
            pass

    async def _take_samples(self, wait_s: float) -> ReceivedSample | None:
        samples = await (await self.connect()).telemetry(self.record.last_sample, wait_s)
        if self.silent_since is None:  # It is `follow` that ends a silence.
            self.heard_at = time.time()
        newest = self.record.keep_samples(samples, self.clock_offset_s, is_over=self.is_over)
        if samples and newest is None:
            # A daemon whose clock was set back counts anew; one that only repeats itself must keep nobody busy.
            await asyncio.sleep(RECONNECT_S)
        return newest

    def retry_now(self) -> None:
        """Try at once to reach a host that is silent: something has changed."""
        self._retry.set()

    async def close(self) -> None:
        """Let go of the connection."""
        self.record.finish_logs()
        if self.client is not None:
            with contextlib.suppress(HostError):
                await self.client.close()

    async def lose_link(self, error: HostError) -> None:
        """See to what a call to the agent failed with: the host is silent from now on, or asked again. May raise it."""
        if isinstance(error, AgentError) and error.code is not None:
            if error.code == ErrorCode.NO_SUCH_ATTEMPT and self._may_be_known_again():
                await asyncio.sleep(RETRY_S)
                return
            self._refusals += 1
            if error.code == ErrorCode.NO_SUCH_ATTEMPT or self._refusals > MAX_REFUSALS:
                raise error
            await asyncio.sleep(RECONNECT_S)
            return
        if self.silent_since is None and not has_just_woken():  # Else it was this process that was silent.
            self.silent_since = time.time()
            self.on_change()
        gone = error if isinstance(error, AgentGoneError) else None
        if _args(gone) != _args(self.agent_gone):
            self.agent_gone = without_frames(gone) if gone is not None else None
            self.on_change()
        needs_person = isinstance(error, (AuthenticationError, HostKeyError))
        if needs_person and not self.needs_person:
            self.needs_person = without_frames(error)
            self.on_change()
        await self.drop_link()
        pause_s = PERSON_RETRY_S if needs_person else RECONNECT_S if self.silent_since is not None else AWAKE_RETRY_S
        if isinstance(error, BrokenProtocolError):
            now = time.monotonic()
            self._breaks = self._breaks + 1 if now - self._broke_at < 2 * MOST_RECONNECT_S else 1
            self._broke_at = now
            pause_s = min(pause_s * 2 ** min(self._breaks - 1, 10), MOST_RECONNECT_S)
        with contextlib.suppress(asyncio.TimeoutError):
            await within(self._retry.wait(), pause_s)
        self._retry.clear()

    def _drains_in_vain(self) -> bool:
        """Whether only logs are still to come, and the host has been silent for too long to wait for them."""
        if self.status is None or not self.status.state.is_final or self.silent_since is None:
            return False
        return elapsed_s(self.silent_since) > (HURRIED_DRAIN_S if self.hurries else SILENT_DRAIN_S)

    def _may_be_known_again(self) -> bool:
        """Whether a supervisor whose records were removed is to be given time to make them anew."""
        if self.status is None:
            return False
        now = time.monotonic()
        self._unknown_since = self._unknown_since or now
        return now - self._unknown_since < RECORDS_S

    def _store_if_there_is_room(self, reply: FollowReply) -> bool:
        """Return whether all was written; a full disk here is no reason to end anything there."""
        trouble: OSError | None = None
        try:
            self.record.store(reply)
        except OSError as error:
            trouble = error
        if _args(trouble) != _args(self.disk_trouble):
            self.disk_trouble = without_frames(trouble) if trouble is not None else None
            self.on_change()
        return trouble is None


def disk_words(trouble: OSError) -> str:
    """Return why something cannot be written, without where."""
    return trouble.strerror or str(trouble)


def _args(error: Exception | None) -> tuple[object, ...] | None:
    """Return what an error was made of: two of the same are no news."""
    return error.args if error is not None else None


def is_undecided(error: HostError) -> bool:
    """Whether an error leaves open if what was asked for happens: there was no answer, or none that settles it."""
    if isinstance(error, AgentError):
        return error.code in (ErrorCode.TIMED_OUT, ErrorCode.BUSY)
    return isinstance(error, HostUnreachableError)
