"""Listeners for the probes of other hosts: short-lived, silent until a probe shows the token, bounded in all they take.

Everything runs on the daemon's event loop; what a probe sends is counted and thrown away.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
import struct
import time
from collections.abc import Callable

from dtagent.errors import RpcError
from dtagent.protocol import sentences
from dtagent.protocol.probes import (
    LOAD,
    MAX_LISTEN_S,
    MAX_LOAD_BYTES,
    PING,
    TOKEN_BYTES,
    TOTAL,
    HushRequest,
    ListenReply,
    ListenRequest,
)
from dtagent.protocol.rpc import ErrorCode
from dtagent.system.interfaces import narrow, reserve_port

MAX_LISTENERS = 16
MAX_PEERS = 1024
"""Probes at a listener at once."""
MAX_STRANGERS = 32
"""Of them, those that have not shown the token yet."""
TOKEN_LIMIT_S = 3.0
"""How long a probe may take to show the token."""
MAX_PINGS = 64
TELL_S = 0.01
"""Between two words on how much has come."""
BUFFER_BYTES = 256 * 1024


class Listeners:
    """The listeners of one daemon, by their tokens."""

    def __init__(self) -> None:
        self._open: dict[str, _Listener] = {}

    async def listen(self, request: ListenRequest) -> ListenReply:
        """Open a listener.

        Raises:
            RpcError: INVALID_PARAMS, BUSY with too many of them, or REFUSED where no port of the range is free.
        """
        if len(request.token) != 2 * TOKEN_BYTES or not request.token.isalnum() or not request.token.isascii():
            raise RpcError(ErrorCode.INVALID_PARAMS, sentences.BAD_TOKEN(count=2 * TOKEN_BYTES))
        if request.token in self._open:
            raise RpcError(ErrorCode.INVALID_PARAMS, sentences.TOKEN_IN_USE())
        if len(self._open) >= MAX_LISTENERS:
            raise RpcError(ErrorCode.BUSY, sentences.TOO_MANY_LISTENERS(count=MAX_LISTENERS))
        first, last = request.port_range or (0, 0)
        if request.port_range is not None and not 1024 <= first <= last <= 65535:
            raise RpcError(ErrorCode.INVALID_PARAMS, sentences.BAD_PORT_RANGE(first=first, last=last))
        held = reserve_port(first, last)
        if held is None:
            raise RpcError(ErrorCode.REFUSED, sentences.PORTS_TAKEN(first=first, last=last))
        if request.address is not None:
            try:
                held = await asyncio.to_thread(narrow, held, request.address)  # It may be a name.
            except OSError as error:
                said = sentences.PORT_TAKEN_MEANWHILE(error=str(error.strerror))
                raise RpcError(ErrorCode.BUSY, said) from error
        seconds = min(max(request.seconds, 0.0), MAX_LISTEN_S)
        listener = _Listener(request.token.encode(), min(max(request.load_bytes, 0), MAX_LOAD_BYTES))
        self._open[request.token] = listener
        try:
            await listener.open(held, seconds, lambda: self._forget(request.token))
        except BaseException:
            self._forget(request.token)
            held.close()
            raise
        return ListenReply(int(held.getsockname()[1]))

    async def hush(self, request: HushRequest) -> dict[str, bool]:
        """End a listener; its port is free afterwards."""
        was_open = self._forget(request.token)
        await asyncio.sleep(0)
        return {"ended": was_open}

    def close(self) -> None:
        """End all."""
        for token in list(self._open):
            self._forget(token)

    def _forget(self, token: str) -> bool:
        listener = self._open.pop(token, None)
        if listener is not None:
            listener.close()
        return listener is not None


class _Listener:
    def __init__(self, token: bytes, load_bytes: int) -> None:
        self.token = token
        self.load_bytes = load_bytes
        """How much it may still take in."""
        self.peers: set[_Peer] = set()
        self._server: asyncio.Server | None = None
        self._is_over = False
        self._end: asyncio.TimerHandle | None = None

    async def open(self, held: socket.socket, seconds: float, forget: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Peer(self), sock=held, backlog=MAX_PEERS)
        self._end = loop.call_later(seconds, forget)

    def admits(self) -> bool:
        """Whether one more may come in."""
        if self._is_over:
            return False  # It was on its way when the listener ended.
        strangers = sum(not peer.is_known for peer in self.peers)
        return len(self.peers) < MAX_PEERS and strangers < MAX_STRANGERS

    def close(self) -> None:
        """Let nobody in any more; the port is free in the next turn of the event loop."""
        self._is_over = True
        if self._end is not None:
            self._end.cancel()
        if self._server is not None:
            loop = asyncio.get_running_loop()
            for listening in self._server.sockets:
                loop.remove_reader(listening.fileno())
            # Not at once: whoever was accepted in this turn would be forgotten by asyncio, and wait for ever.
            loop.call_soon(self._server.close)
        for peer in list(self.peers):
            peer.drop()


class _Peer(asyncio.BufferedProtocol):
    """One connection. Reads into one buffer, an event of the loop at a time, so that a flood starves nobody."""

    def __init__(self, listener: _Listener) -> None:
        self.is_known = False
        self._listener = listener
        self._shown = bytearray()
        self._buffer = memoryview(bytearray(512))
        self._pings = 0
        self._header: bytearray | None = None
        """Since the load was announced: how large it will be."""
        self._announced: int | None = None
        self._total = 0
        self._told_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a server of streams makes nothing else
        self._transport = transport
        # Closing resets: nothing lingers in TIME_WAIT, where it would keep the port from the job that it was tried for.
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._listener.admits():
            transport.abort()
            return
        self._listener.peers.add(self)
        self._limit = asyncio.get_running_loop().call_later(TOKEN_LIMIT_S, self.drop)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = self._buffer[:nbytes]
        if self._announced is not None:
            self._count(nbytes)
        elif self.is_known:
            self._answer(bytes(data))
        else:
            self._shown += data
            wanted = len(self._listener.token)
            if len(self._shown) < wanted:
                return
            if not hmac.compare_digest(bytes(self._shown[:wanted]), self._listener.token):
                self.drop()
                return
            self.is_known = True
            if self._limit is not None:
                self._limit.cancel()
            self._answer(bytes(self._shown[wanted:]))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._listener.peers.discard(self)

    def drop(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _answer(self, data: bytes) -> None:
        if self._header is not None:
            self._start_load(data)
            return
        pings, load, rest = data.partition(LOAD)
        self._pings += len(pings)
        if pings.strip(PING) or self._pings > MAX_PINGS:
            self.drop()
            return
        if pings and self._transport is not None:
            self._transport.write(pings)
        if load:
            self._header = bytearray()
            self._start_load(rest)

    def _start_load(self, data: bytes) -> None:
        header = self._header if self._header is not None else bytearray()
        header += data
        if len(header) < TOTAL.size:
            return
        (self._announced,) = TOTAL.unpack_from(header)
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._count(len(header) - TOTAL.size)

    def _count(self, size: int) -> None:
        self._total += size
        self._listener.load_bytes -= size
        if self._listener.load_bytes < 0:
            self.drop()
            return
        now = time.monotonic()
        if self._transport is not None and (now - self._told_at >= TELL_S or self._total == self._announced):
            self._told_at = now
            self._transport.write(TOTAL.pack(self._total))
