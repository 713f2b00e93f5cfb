"""A bad link: a TCP proxy before a real server, which delays, drips, limits, swallows, closes and resets on demand."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

Result = TypeVar("Result")

_READ_BYTES = 16 * 1024
_TICK_S = 0.02
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""A linger time of zero: closing the socket sends RST instead of FIN."""


@dataclass
class Way:
    """What one direction of the link does to the bytes that pass it; may be changed at any moment."""

    delay_s: float = 0.0
    """How long each piece is held back."""
    bytes_per_s: float | None = None
    """Bandwidth; `None` is without limit."""
    piece_bytes: int = _READ_BYTES
    """How much goes out at once: 1 is a drip."""
    is_cut: bool = False
    """Bytes stay here while it is; whoever sent them sees that they were acknowledged, and no answer."""


@dataclass
class Proxy:
    """Listens on a free port of 127.0.0.1 while the `with` block lasts; the loop runs in a thread of its own."""

    host: str
    port: int
    """Where the real server is."""
    up: Way = field(default_factory=Way)
    """From the client to the server."""
    down: Way = field(default_factory=Way)
    """From the server to the client."""
    connections: int = 0
    """Taken so far."""

    def __enter__(self) -> Proxy:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.listens_at = int(self._listener.getsockname()[1])
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy")
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._serve, sock=self._listener))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Let nothing pass any more, either way; neither side is told."""
        self.up.is_cut = self.down.is_cut = True

    def heal(self) -> None:
        """Let everything pass again, what was held back first."""
        self.up.is_cut = self.down.is_cut = False

    def reset(self) -> int:
        """Break every connection there is by RST, both ways; return how many ends that were."""
        return self._do(self._reset())

    def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _reset(self) -> int:
        count = len(self._writers)
        for writer in list(self._writers):
            _socket_of(writer).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()
        return count

    async def _end(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            onward_reader, onward = await asyncio.open_connection(self.host, self.port)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(onward)
        try:
            await asyncio.gather(_carry(reader, onward, self.up), _carry(onward_reader, writer, self.down))
        finally:
            for end in (writer, onward):
                self._writers.discard(end)
                end.transport.abort()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
    """Pass on what comes, as the way has it, to its end."""
    with contextlib.suppress(OSError):
        while data := await reader.read(_READ_BYTES):
            while data:
                await _until_whole(way)
                piece, data = data[: way.piece_bytes], data[way.piece_bytes :]
                await asyncio.sleep(way.delay_s + (len(piece) / way.bytes_per_s if way.bytes_per_s else 0.0))
                await _until_whole(way)
                writer.write(piece)
                await writer.drain()
        await _until_whole(way)
        if writer.can_write_eof():
            writer.write_eof()


async def _until_whole(way: Way) -> None:
    while way.is_cut:  # noqa: ASYNC110 - another thread sets it
        await asyncio.sleep(_TICK_S)


def _socket_of(writer: asyncio.StreamWriter) -> socket.socket:
    found: socket.socket = writer.get_extra_info("socket")
    return found
