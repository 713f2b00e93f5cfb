"""One command's stdin, stdout and stderr over an SSH channel, as a `ByteStream`. Idle, it holds no thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import paramiko
from paramiko.buffered_pipe import BufferedPipe

from dttui.errors import HostUnreachableError
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.transport.base import RemoteCommand
from dttui.transport.remote_commands import COMMANDS
from dttui.transport.ssh.link import Link
from dttui.transport.ssh.threads import Threads, Wakeups

READ_BYTES = 128 * 1024
WRITE_BYTES = 32 * 1024
STDERR_KEPT_BYTES = 16 * 1024
WRITE_SLICE_S = 0.2
"""How long a write may hold a thread while the other side does not read; then it waits on the event loop."""
MIN_WRITE_PAUSE_S = 0.002
MAX_WRITE_PAUSE_S = 0.5
TURN_BYTES = 256 * 1024
"""How much one write hands over before others have their turn."""
STDERR_GRACE_S = 2.0
"""How long the rest of stderr is waited for after the command ended: a child it left behind may keep it open."""


class _LoopEvent:
    """What paramiko sets in place of a `threading.Event`, in whatever thread, and a coroutine waits for."""

    __slots__ = ("_set", "_waiters", "_wakeups")

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._set = False
        self._waiters: list[asyncio.Future[None]] = []

    def is_set(self) -> bool:
        """Whether it is set now."""
        return self._set

    def set(self) -> None:
        """Called by paramiko."""
        if not self._set:
            self._set = True
            self._wakeups.call(self._wake)

    def clear(self) -> None:
        """Called by paramiko once all has been read."""
        self._set = False

    async def reached(self) -> None:
        """Return once it is set."""
        while not self._set:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                if not self._set:  # In another thread, before there was anybody to wake.
                    await waiter
            finally:
                self._waiters.remove(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class _Inlet:
    """What comes in by one of a channel's buffers. A cancelled read loses nothing: the next one gets its bytes."""

    def __init__(
        self,
        channel: paramiko.Channel,
        buffer: BufferedPipe[Any],
        receive: Callable[[int], bytes],
        threads: Threads,
        wakeups: Wakeups,
    ) -> None:
        self.channel = channel
        self._buffer = buffer
        self._receive = receive
        self._threads = threads
        self._ready = _LoopEvent(wakeups)
        self.under_way: asyncio.Future[bytes] | None = None
        buffer.set_event(self._ready)  # type: ignore[arg-type]  # it only sets and clears it

    async def take(self, others: Sequence[_Inlet]) -> bytes:
        """Return the next bytes, `b""` at the end. `others` are those of the same channel."""
        if self.under_way is None:
            await self._ready.reached()
            waiting = min(len(self._buffer), READ_BYTES)
            # Telling the other side of new room may have to wait until the socket takes that: then in a thread.
            room = self.channel.in_window_threshold - self.channel.in_window_sofar
            if waiting <= room and all(inlet.under_way is None for inlet in others):
                return self._take(waiting or READ_BYTES)
            self.under_way = asyncio.ensure_future(self._threads.traffic(self._take, READ_BYTES))
        data = await asyncio.shield(self.under_way)
        self.under_way = None
        return data

    def _take(self, most: int) -> bytes:
        try:
            return self._receive(most)
        except (paramiko.SSHException, EOFError, OSError):
            return b""


class ChannelStream:
    """A running command. Reading pulls from SSH's window, so a consumer that stops reading stops the host.

    When the link dies, reading ends with `b""`, writing raises HostUnreachableError, and the exit status is `None`.
    """

    def __init__(
        self, channel: paramiko.Channel, link: Link, threads: Threads, wakeups: Wakeups, environment: Environment
    ) -> None:
        """Take over a channel to `environment` on which nothing has been started yet."""
        self._environment = environment
        self.channel = channel
        self._link = link
        self._threads = threads
        self._writing = asyncio.Lock()
        self._stdout = _Inlet(channel, channel.in_buffer, channel.recv, threads, wakeups)
        self._stderr = _Inlet(channel, channel.in_stderr_buffer, channel.recv_stderr, threads, wakeups)
        self._inlets = (self._stdout, self._stderr)
        self._stderr_tail = bytearray()
        self._stderr_reader: asyncio.Task[None] | None = None
        self._ended = _LoopEvent(wakeups)
        channel.status_event = self._ended  # type: ignore[assignment]  # it is only set
        channel.settimeout(WRITE_SLICE_S)

    def start(self, command: RemoteCommand) -> None:
        """Have the host run it. Blocking. Raises SSHException, EOFError or OSError."""
        self._link.call(self.channel.exec_command, COMMANDS[command])

    def listen(self) -> None:
        """Begin to keep its stderr."""
        self._stderr_reader = asyncio.create_task(self._keep_stderr())

    async def read(self) -> bytes:
        """Return the next bytes of its stdout; `b""` at the end."""
        return await self._stdout.take(self._inlets)

    async def write(self, data: bytes) -> None:
        """Write all of `data`, waiting while the other side does not read.

        Raises:
            HostUnreachableError: The command has ended, or the link is gone.
        """
        pause_s = 0.0
        async with self._writing:
            while data:
                try:
                    sent = await self._threads.traffic(self._send, data)
                except (paramiko.SSHException, EOFError, OSError) as error:
                    raise self._gone() from error
                data = data[sent:]
                if data:
                    pause_s = 0.0 if sent else min(pause_s * 2 + MIN_WRITE_PAUSE_S, MAX_WRITE_PAUSE_S)
                    await asyncio.sleep(pause_s)

    async def write_eof(self) -> None:
        """Close its stdin."""
        async with self._writing:
            with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
                await self._threads.traffic(self._link.call, self.channel.shutdown_write)

    async def wait(self) -> tuple[int | None, bytes]:
        """Return its exit status, `None` when a signal ended it or the link broke, and the end of its stderr."""
        await self._ended.reached()
        if self._stderr_reader is not None:
            await asyncio.wait({self._stderr_reader}, timeout=STDERR_GRACE_S)
        status = self.channel.exit_status
        return (status if status >= 0 else None), bytes(self._stderr_tail)

    async def close(self) -> None:
        """Let go of it; the host closes its stdin and output."""
        if not self.channel.closed:
            with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
                await self._threads.traffic(self._link.call, self.channel.close)
        if self._stderr_reader is not None:
            self._stderr_reader.cancel()
            await asyncio.wait({self._stderr_reader})

    async def _keep_stderr(self) -> None:
        while data := await self._stderr.take(self._inlets):
            self._stderr_tail += data
            del self._stderr_tail[:-STDERR_KEPT_BYTES]

    def _send(self, data: bytes) -> int:
        """Return how much went out; less than all when the other side's window is full. Blocking."""
        sent = 0
        while sent < min(len(data), TURN_BYTES):
            try:
                count = self._link.call(self.channel.send, data[sent : sent + WRITE_BYTES])
            except TimeoutError:
                break
            if count == 0:
                raise EOFError  # Its stdin is closed.
            sent += count
        return sent

    def _gone(self) -> HostUnreachableError:
        name = self._environment.name
        is_alive = self._link.is_alive
        text = _("the command on {host} has ended").format(host=name) if is_alive else self._link.lost(name)
        return HostUnreachableError(name, text)
