"""Hosts that exist in memory only, for tests: a coroutine plays the command, and links can be slow, refused or cut."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from dttui.errors import HostError, HostUnreachableError
from dttui.inventory.models import Environment
from dttui.transport.base import Prompter, RemoteCommand

WINDOW_BYTES = 256 * 1024
"""How much one side may write before the other reads."""


class Pipe:
    """One direction of bytes, with an end and with back-pressure."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._closed = False
        self._changed = asyncio.Condition()

    async def read(self, limit: int = WINDOW_BYTES) -> bytes:
        """Return at least one and at most `limit` bytes; `b""` at the end."""
        return await self._take(lambda: min(limit, len(self._data)))

    async def readline(self) -> bytes:
        """Return a line with its newline; what is left, perhaps `b""`, at the end."""
        return await self._take(lambda: self._data.find(b"\n") + 1)

    async def readexactly(self, size: int) -> bytes:
        """Return `size` bytes, fewer only at the end."""
        return await self._take(lambda: size if len(self._data) >= size else 0) if size else b""

    async def write(self, data: bytes) -> bool:
        """Write, waiting while the window is full; false when nobody will read it."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._closed or len(self._data) < WINDOW_BYTES)
            if self._closed:
                return False
            self._data += data
            self._changed.notify_all()
            return True

    async def close(self) -> None:
        """Let readers have what is left, and then the end."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def _take(self, ready: Callable[[], int]) -> bytes:
        async with self._changed:
            await self._changed.wait_for(lambda: self._closed or ready() > 0)
            size = ready() or len(self._data)
            data = bytes(self._data[:size])
            del self._data[:size]
            self._changed.notify_all()
            return data


@dataclass
class FakeProcess:
    """What a handler plays: its stdin to read, its stdout to write, its stderr to fill."""

    command: RemoteCommand
    environment: Environment
    stdin: Pipe = field(default_factory=Pipe)
    stdout: Pipe = field(default_factory=Pipe)
    stderr: bytearray = field(default_factory=bytearray)


Handler = Callable[[FakeProcess], Awaitable[int]]
"""Plays a command; what it returns is the exit status, and its stdout ends then."""


@dataclass
class FakeHost:
    """How one environment behaves. A test may change it at any time."""

    handler: Handler | None = None
    error: HostError | None = None
    """What `connect` raises."""
    delay_s: float = 0.0
    """How long `connect` takes; no shorter than its limit means no answer."""
    address: str = "192.0.2.1"


class FakeStream:
    """A handler's other end."""

    def __init__(self, process: FakeProcess, handler: Handler) -> None:
        self._process = process
        self._status: int | None = None
        self._task = asyncio.create_task(self._play(handler))

    async def read(self) -> bytes:
        """Return the next bytes of its stdout; `b""` at the end."""
        return await self._process.stdout.read()

    async def write(self, data: bytes) -> None:
        """Write to its stdin. Raises HostUnreachableError when it has ended or the link is cut."""
        if not await self._process.stdin.write(data):
            raise HostUnreachableError(self._process.environment.name, "the command has ended")

    async def write_eof(self) -> None:
        """Close its stdin."""
        await self._process.stdin.close()

    async def wait(self) -> tuple[int | None, bytes]:
        """Return its exit status, `None` where the link was cut, and the end of its stderr."""
        await asyncio.wait({self._task})
        if not self._task.cancelled() and (error := self._task.exception()):
            raise error
        return self._status, bytes(self._process.stderr[-16 * 1024 :])

    async def close(self) -> None:
        """End it."""
        self._task.cancel()
        await asyncio.wait({self._task})
        # A task cancelled before its first step never came to its own clean-up.
        await self._process.stdin.close()
        await self._process.stdout.close()

    async def _play(self, handler: Handler) -> None:
        try:
            self._status = await handler(self._process)
        finally:
            await self._process.stdin.close()
            await self._process.stdout.close()


class FakeConnection:
    """A connection to a fake host."""

    def __init__(self, environment: Environment, host: FakeHost) -> None:
        self._environment = environment
        self._host = host
        self.streams: list[FakeStream] = []
        self.closed = False

    @property
    def environment(self) -> Environment:
        """Where it leads."""
        return self._environment

    @property
    def address(self) -> str:
        """The host's made-up address."""
        return self._host.address

    async def run(self, command: RemoteCommand) -> FakeStream:
        """Start the handler. Raises HostUnreachableError when the connection is closed or nothing plays commands."""
        if self.closed or self._host.handler is None:
            raise HostUnreachableError(self._environment.name, f"the connection to {self._environment.name} is lost")
        stream = FakeStream(FakeProcess(command, self._environment), self._host.handler)
        self.streams.append(stream)
        return stream

    async def close(self) -> None:
        """Close it and all its streams."""
        self.closed = True
        for stream in self.streams:
            await stream.close()


class FakeTransport:
    """Connects to fake hosts, by environment name. Counts and keeps what it made, for tests to look at."""

    def __init__(self, hosts: Mapping[str, FakeHost]) -> None:
        self.hosts = dict(hosts)
        self.connections: list[FakeConnection] = []

    async def connect(self, environment: Environment, prompter: Prompter, timeout_s: float) -> FakeConnection:
        """Connect, or fail as the host is told to. An environment without a host does not answer."""
        host = self.hosts.get(environment.name)
        if host is None or host.delay_s >= timeout_s:
            await asyncio.sleep(timeout_s if host else 0)
            raise HostUnreachableError(environment.name, f"no answer from {environment.name} within {timeout_s:g} s")
        await asyncio.sleep(host.delay_s)
        if host.error is not None:
            raise host.error
        connection = FakeConnection(environment, host)
        self.connections.append(connection)
        return connection

    async def cut(self, key: str) -> None:
        """Break all connections to a host: their streams end, and nothing more can be started on them."""
        for connection in self.connections:
            if connection.environment.name == key:
                await connection.close()

    async def close(self) -> None:
        """Close all connections."""
        for connection in self.connections:
            await connection.close()
