"""This machine as a host: commands are child processes, without SSH."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import weakref
from collections.abc import Sequence

from dttui.errors import HostUnreachableError
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.transport.base import Prompter, RemoteCommand
from dttui.transport.commands import COMMANDS

READ_BYTES = 128 * 1024
STDERR_KEPT_BYTES = 16 * 1024
STDERR_GRACE_S = 2.0
END_GRACE_S = 1.0
"""How long a command has to end by itself once its stdin is closed, and again after SIGTERM."""
IDLE_EXIT_S = "300"
"""After which an embedded agent that nobody needs ends."""
ADDRESS = "127.0.0.1"


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    """asyncio's streams, and word of the exit even while a grandchild keeps the pipes open."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=READ_BYTES, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class LocalStream:
    """A child process, leader of a session and process group of its own."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: _Protocol, name: str) -> None:
        self._transport = transport
        self._protocol = protocol
        self._name = name
        self._stderr_tail = bytearray()
        self._stderr_reader = asyncio.create_task(self._keep_stderr())
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, command: Sequence[str], name: str) -> LocalStream:
        """Start a process. Raises OSError where it cannot be."""
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(lambda: _Protocol(loop), *command, start_new_session=True)
        return cls(transport, protocol, name)

    async def read(self) -> bytes:
        """Return the next bytes of its stdout; `b""` at the end."""
        stdout = self._protocol.stdout
        return await stdout.read(READ_BYTES) if stdout is not None else b""

    async def write(self, data: bytes) -> None:
        """Write to its stdin, waiting while it does not read.

        Raises:
            HostUnreachableError: It has ended, or its stdin is closed.
        """
        stdin = self._protocol.stdin
        if stdin is None or stdin.is_closing():
            raise self._gone()
        try:
            stdin.write(data)
            await stdin.drain()
        except OSError as error:
            raise self._gone() from error

    async def write_eof(self) -> None:
        """Close its stdin."""
        if self._protocol.stdin is not None:
            self._protocol.stdin.close()

    async def wait(self) -> tuple[int | None, bytes]:
        """Return its exit status, `None` when a signal ended it, and the end of its stderr."""
        await self._protocol.exited.wait()
        await asyncio.wait({self._stderr_reader}, timeout=STDERR_GRACE_S)
        status = self._transport.get_returncode()
        return (status if status is not None and status >= 0 else None), bytes(self._stderr_tail)

    async def close(self) -> None:
        """Close its stdin, and end it and its process group if that does not."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self.write_eof()
        if not await self._ends():
            self._signal(signal.SIGTERM)
            await self._ends()
        self._signal(signal.SIGKILL)
        await self._protocol.exited.wait()
        self._transport.close()
        self._stderr_reader.cancel()
        await asyncio.wait({self._stderr_reader})

    async def _ends(self) -> bool:
        try:
            await asyncio.wait_for(self._protocol.exited.wait(), END_GRACE_S)
        except asyncio.TimeoutError:
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        """To the whole group. Where the leader is gone and its number taken anew, the group is not ours any more."""
        group = self._transport.get_pid()
        if self._protocol.exited.is_set() and os.path.exists(f"/proc/{group}"):
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)

    async def _keep_stderr(self) -> None:
        stderr = self._protocol.stderr
        while stderr is not None and (data := await stderr.read(READ_BYTES)):
            self._stderr_tail += data
            del self._stderr_tail[:-STDERR_KEPT_BYTES]

    def _gone(self) -> HostUnreachableError:
        return HostUnreachableError(self._name, _("the command on {host} has ended").format(host=self._name))


class LocalConnection:
    """A stand-in for a connection: there is nothing to connect to."""

    def __init__(self, environment: Environment, agent_command: Sequence[str]) -> None:
        self._environment = environment
        self._agent_command = agent_command
        self._streams: weakref.WeakSet[LocalStream] = weakref.WeakSet()
        self._closed = False

    @property
    def environment(self) -> Environment:
        """Where it leads."""
        return self._environment

    @property
    def address(self) -> str:
        """The loopback address."""
        return ADDRESS

    async def run(self, command: RemoteCommand) -> LocalStream:
        """Start a command. Raises HostUnreachableError where that fails."""
        name = self._environment.name
        if self._closed:
            message = _("the connection to {host} is closed").format(host=self._environment.name)
            raise HostUnreachableError(name, message)
        arguments: Sequence[str] = ("/bin/sh", "-c", COMMANDS[command])
        if command is RemoteCommand.AGENT:
            root = self._environment.agent_root
            # An agent with a root of its own belongs to an embedded cluster, and is not to stay for ever.
            arguments = (*self._agent_command, *(("--root", root, "--idle-exit", IDLE_EXIT_S) if root else ()))
        try:
            stream = await LocalStream.start(arguments, name)
        except OSError as error:
            message = _("a command cannot be started on this machine: {error}").format(error=error)
            raise HostUnreachableError(name, message) from error
        self._streams.add(stream)
        return stream

    async def close(self) -> None:
        """End all commands started here. Safe to call twice."""
        self._closed = True
        await asyncio.gather(*(stream.close() for stream in list(self._streams)))


class LocalTransport:
    """Reaches environments that are this machine."""

    def __init__(self, agent_command: Sequence[str] | None = None) -> None:
        """`agent_command` starts the bridge; by default that of the dtagent installed beside dttui."""
        self._agent_command = agent_command or (sys.executable, "-I", "-m", "dtagent", "connect")

    async def connect(self, environment: Environment, prompter: Prompter, timeout_s: float) -> LocalConnection:
        """Return a connection; nothing can go wrong before a command is run."""
        return LocalConnection(environment, self._agent_command)
