"""One node of one attempt, seen from the login node: the conversation with its agent and what comes back from it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dtagent.protocol.jobs import (
    AttemptKey,
    FollowReply,
    FollowRequest,
    NodeState,
    NodeStatus,
    PrepareReply,
    PrepareRequest,
    ProcessSpec,
    StartRequest,
    StopRequest,
    TextFile,
)
from dtagent.protocol.rpc import ErrorCode, to_wire
from dtagent.protocol.telemetry import FactsRequest, HostFacts, TelemetryReply, TelemetryRequest

from dttui.errors import AgentError, HostError, HostUnreachableError
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.planning.models import PlannedNode
from dttui.services.agent import AgentClient
from dttui.services.jobs import JobDirectory, append_line
from dttui.services.metrics import MetricStream
from dttui.services.occupation import HostReading
from dttui.transport.base import Prompter, Transport

CONNECT_TIMEOUT_S = 20.0
RECONNECT_S = 3.0
FOLLOW_WAIT_S = 10.0
FACTS_TIMEOUT_S = 60.0
SAMPLE_WAIT_S = 5.0
GPU_WAIT_S = 8.0
"""How long the first reading of the GPUs may take."""
METRICS_STREAM = "metrics"
MAX_REFUSALS = 5
"""Times in a row that an agent may answer with an error before the node is given up."""
_STREAM = re.compile(r"(launcher|\d{1,7})\.(out|err)|metrics")


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
    client: AgentClient | None = None
    status: NodeStatus | None = None
    silent_since: float | None = None
    """Unix time at which the link was lost; `None` while it is there."""
    heard_at: float = field(default_factory=time.time)
    """Unix time of the last word from it."""
    is_lost: bool = False
    """Given up: it could not be reached when it had to be."""
    clock_offset_s: float = 0.0
    _offsets: dict[str, int] = field(default_factory=dict)
    _refusals: int = 0
    metrics: MetricStream = field(default_factory=MetricStream)
    """What the ranks reported."""
    _connecting: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        """The environment's."""
        return self.planned.name

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
        return bad_exit or status.state in (NodeState.LOST, NodeState.UNKILLABLE)

    @property
    def has_succeeded(self) -> bool:
        """Whether all its processes ended with 0."""
        status = self.status
        ended = status is not None and status.state is NodeState.ENDED and bool(status.exits)
        return ended and not self.has_failed and not self.is_lost

    @property
    def has_all_ranks(self) -> bool:
        """Whether every rank runs the user's code, or has already run it."""
        return self.status is not None and set(self.planned.ranks) <= set(self.status.ranks_started)

    async def connect(self) -> AgentClient:
        """Connect, or return the connection there is. Raises HostError."""
        async with self._connecting:
            if self.client is None:
                self.client = await AgentClient.connect(
                    self.environment, self.transport, self.prompter, CONNECT_TIMEOUT_S
                )
                self.clock_offset_s = self.client.clock_offset_s
            return self.client

    async def read_host(self, before: HostReading | None = None) -> HostReading:
        """Ask what the host is and does now, or what it does after an earlier reading. Raises HostError."""
        client = await self.connect()
        facts = before.facts if before is not None else None
        if facts is None:
            facts = await client.call("facts", FactsRequest([self.planned.python]), HostFacts, FACTS_TIMEOUT_S)
        after = before.sample.seq if before is not None else None
        deadline = time.monotonic() + GPU_WAIT_S
        while True:
            request = TelemetryRequest(after, SAMPLE_WAIT_S)
            reply = await client.call("telemetry", request, TelemetryReply, SAMPLE_WAIT_S + 20)
            sample = reply.samples[-1] if reply.samples else None
            is_late = time.monotonic() > deadline
            # A daemon that is only just starting has not heard from the GPUs' driver yet.
            if sample is not None and (sample.gpus or not facts.gpus or is_late):
                return HostReading(facts, sample)
            if is_late:
                raise AgentError(self.name, _("{host}: the agent does not read its host").format(host=self.name))
            after = sample.seq if sample is not None else after

    async def prepare(self, master_address: str, port_range: tuple[int, int]) -> PrepareReply:
        """Make the host ready. Raises HostError."""
        node = self.planned
        request = PrepareRequest(
            key=self.key,
            node_rank=node.node_rank,
            python=node.python,
            master_address=master_address,
            reserve_port=node.node_rank == 0,
            port_range=port_range,
            cuda_slots=node.cuda_slots,
            required_paths=list(node.required_paths),
        )
        return await (await self.connect()).call("prepare", request, PrepareReply)

    async def start(self, bound: PlannedNode, grace_s: float, secrets: dict[str, str]) -> None:
        """Start the bound processes. Raises HostError."""
        specs = [
            ProcessSpec(item.name, list(item.argv), item.cwd, dict(item.env), item.rank) for item in bound.processes
        ]
        files = [TextFile(item.path, item.text, item.executable) for item in bound.files]
        request = StartRequest(self.key, bound.node_rank, specs, list(bound.ranks), files, grace_s, secrets)
        self.status = await (await self.connect()).call("start", request, NodeStatus)

    async def stop(self, *, force: bool) -> None:
        """Ask the host to end its part. Raises HostError."""
        request = StopRequest(self.key, force)
        self.status = await (await self.connect()).call("stop", request, NodeStatus)

    async def follow(self) -> None:
        """Fetch logs, metrics and status until the node's part is over, through any number of lost connections."""
        stamp = ""
        while not self.is_lost:
            try:
                # At the end only the rest of the logs is fetched, and after silence any answer is news.
                wait_s = 0.0 if self.is_over or self.silent_since is not None else FOLLOW_WAIT_S
                request = FollowRequest(self.key, dict(self._offsets), stamp, wait_s)
                reply = await (await self.connect()).call("follow", request, FollowReply, FOLLOW_WAIT_S + 20)
                self._store(reply)
            except HostError as error:
                await self._lose_link(error)
                continue
            stamp = reply.stamp
            self._refusals = 0
            self.heard_at = time.time()
            if self.status != reply.status or self.silent_since is not None:
                self.status = reply.status
                self.silent_since = None
                self.on_change()
            if reply.status.state.is_final and not reply.chunks and not reply.more:
                self._store_metrics(b"\n")  # The last line may have no end of its own.
                return

    async def record_samples(self) -> None:
        """Write the host's telemetry to the job's directory until cancelled."""
        after: int | None = None
        path = self.directory.samples(self.name)
        while True:
            try:
                request = TelemetryRequest(after, FOLLOW_WAIT_S)
                reply = await (await self.connect()).call("telemetry", request, TelemetryReply, FOLLOW_WAIT_S + 20)
            except HostError:
                await asyncio.sleep(RECONNECT_S)  # `follow` says so and connects again.
                continue
            if self.silent_since is None:  # It is `follow` that ends a silence.
                self.heard_at = time.time()
            for sample in reply.samples:
                after = sample.seq
                append_line(path, json.dumps(to_wire(sample)))

    async def close(self) -> None:
        """Let go of the connection."""
        if self.client is not None:
            with contextlib.suppress(HostError):
                await self.client.close()

    async def _lose_link(self, error: HostError) -> None:
        if isinstance(error, AgentError) and error.code is not None:
            self._refusals += 1
            if error.code == ErrorCode.NO_SUCH_ATTEMPT or self._refusals > MAX_REFUSALS:
                raise error
            await asyncio.sleep(RECONNECT_S)
            return
        if self.silent_since is None:
            self.silent_since = time.time()
            self.on_change()
        client, self.client = self.client, None
        if client is not None:
            with contextlib.suppress(HostUnreachableError):
                await client.close()
        await asyncio.sleep(RECONNECT_S)

    def _store(self, reply: FollowReply) -> None:
        folder = self.directory.logs(self.key.attempt, self.name)
        for chunk in reply.chunks:
            # Names become file names and offsets decide what is new: an agent is not trusted with either.
            if chunk.offset != self._offsets.get(chunk.stream, 0) or not self._is_own_stream(chunk.stream):
                raise AgentError(
                    self.name, _("{host}: the agent sends logs that were not asked for").format(host=self.name), code=0
                )
            data = base64.b64decode(chunk.data)
            self._offsets[chunk.stream] = chunk.offset + len(data)
            if chunk.stream == METRICS_STREAM:
                self._store_metrics(data)
                continue
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (folder / chunk.stream).open("ab") as stream:
                stream.write(data)

    def _is_own_stream(self, stream: str) -> bool:
        name, _dot, _kind = stream.partition(".")
        return bool(_STREAM.fullmatch(stream)) and (not name.isdigit() or int(name) in self.planned.ranks)

    def _store_metrics(self, data: bytes) -> None:
        before = (self.metrics.broken, self.metrics.unreadable > 0)
        for metric in self.metrics.feed(data, self.planned.ranks[0], time.time()):
            append_line(self.directory.metrics, json.dumps(to_wire(metric)))
        if before != (self.metrics.broken, self.metrics.unreadable > 0):
            self.on_change()
