"""A command that runs on this machine, as a `ByteStream`: whether it acts here, or reaches another host."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence

from dttui.errors import HostUnreachableError
from dttui.i18n import _
from dttui.variables import for_a_process

READ_BYTES = 128 * 1024
STDERR_KEPT_BYTES = 16 * 1024
STDERR_GRACE_S = 2.0
END_GRACE_S = 1.0
"""How long a command has to end by itself once its stdin is closed, and again after SIGTERM."""
KILLED_GRACE_S = 10.0
"""How long word of a killed one may take to come on a machine that is busy; what waits in the kernel is then left."""


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    """asyncio's streams, and word of the exit even while a grandchild keeps the pipes open."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=READ_BYTES, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class ProcessStream:
    """A child process, leader of a session and process group of its own."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: _Protocol, name: str) -> None:
        self._transport = transport
        self._protocol = protocol
        self._name = name
        self._stderr_tail = bytearray()
        self._stderr_reader = asyncio.create_task(self._keep_stderr())
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, command: Sequence[str], name: str, variables: Mapping[str, str] | None = None
    ) -> ProcessStream:
        """Start a process for the host of that name, by default with the variables of the call. Raises OSError."""
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            lambda: _Protocol(loop),
            *command,
            start_new_session=True,
            env=for_a_process() if variables is None else variables,
        )
        return cls(transport, protocol, name)

    @property
    def stderr_tail(self) -> bytes:
        """The end of what it has printed there so far."""
        return bytes(self._stderr_tail)

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
        return (status if status is not None and status >= 0 else None), self.stderr_tail

    async def close(self) -> None:
        """Close its stdin, and end it and its process group if that does not."""
        await self._close_once(waits=True)

    async def end(self) -> None:
        """The same, of one that is not waited for since it does not answer."""
        await self._close_once(waits=False)

    async def _close_once(self, *, waits: bool) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(waits=waits))
        await asyncio.shield(self._closing)

    async def _close(self, *, waits: bool) -> None:
        await self.write_eof()
        if not (waits and await self._ends()):
            self._signal(signal.SIGTERM)
            await self._ends()
        may_signal = self._signal(signal.SIGKILL)
        await self._ends(KILLED_GRACE_S if may_signal else END_GRACE_S)
        with contextlib.suppress(PermissionError):  # It sends a signal once more.
            self._transport.close()
        self._stderr_reader.cancel()
        await asyncio.wait({self._stderr_reader})

    async def _ends(self, limit_s: float = END_GRACE_S) -> bool:
        try:
            await asyncio.wait_for(self._protocol.exited.wait(), limit_s)
        except asyncio.TimeoutError:
            return False
        return True

    def _signal(self, number: signal.Signals) -> bool:
        """To the whole group; return whether it may be. Gone and its number taken anew, it is not ours any more."""
        group = self._transport.get_pid()
        if self._protocol.exited.is_set() and os.path.exists(f"/proc/{group}"):
            return False
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            pass
        except PermissionError:  # By sudo it is another user's.
            return False
        return True

    async def _keep_stderr(self) -> None:
        stderr = self._protocol.stderr
        while stderr is not None and (data := await stderr.read(READ_BYTES)):
            self._stderr_tail += data
            del self._stderr_tail[:-STDERR_KEPT_BYTES]

    def _gone(self) -> HostUnreachableError:
        return HostUnreachableError(self._name, _("the command on {host} has ended").format(host=self._name))
