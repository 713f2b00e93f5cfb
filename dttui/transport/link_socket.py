"""The socket SSH runs on: small messages at once, and on the event loop neither a read nor a write that waits."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
import threading
from collections.abc import Callable

DEAD_LINK_MS = 8000
"""A peer that acknowledges nothing for so long is gone. TCP alone takes a quarter of an hour to notice."""
IDLE_PROBE_S = 5
PROBE_INTERVAL_S = 2
AHEAD_BYTES = 2048
"""Read ahead while somebody waits for an answer: most fit."""
LOOP_READ_BYTES = 64 * 1024


class LinkSocket(socket.socket):
    """A TCP socket that acknowledges at once: the server's Nagle otherwise waits 40 ms for each small answer.

    It reads ahead, since paramiko asks for a packet in pieces. A thread may wait in it, with a time limit that the
    kernel keeps; from `follow` on the event loop reads and what cannot go out yet is kept, so that nobody ever waits.
    """

    _ahead = b""
    _at = 0
    """How much of what was read ahead has been taken."""
    _limit_s: float | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _followed_fd = -1
    _failure: OSError | None = None
    _ended = False

    def settimeout(self, value: float | None, /) -> None:
        """Limit how long a read may wait; Python's own way costs a system call more for each.

        A write waits until the socket is shut down.
        """
        if self.gettimeout() is not None:
            super().settimeout(None)
        if value != self._limit_s:
            self._limit_s = value
            seconds = value or 0.0  # 0 is no limit; nobody here asks for not waiting at all.
            limit = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
            self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Read, and have the kernel not delay the acknowledgement of what comes next. Raises TimeoutError."""
        if self._at >= len(self._ahead):
            if self._loop is not None:
                if self._failure is not None:
                    raise self._failure
                return b""
            try:
                self._ahead = super().recv(max(bufsize, AHEAD_BYTES), flags)
            except BlockingIOError as error:
                raise TimeoutError from error
            self._at = 0
            self._acknowledge()
        data = self._ahead[self._at : self._at + bufsize]
        self._at += len(data)
        if self._at == len(self._ahead):
            self._ahead, self._at = b"", 0
        return data

    def send(self, data: bytes, flags: int = 0, /) -> int:  # type: ignore[override]  # paramiko sends bytes
        """Write some of it; all of it, sooner or later, while the event loop follows."""
        loop = self._loop
        if loop is None:
            return super().send(data, flags)
        with self._sending:
            if self._followed_fd < 0:
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            was_waiting = bool(self._unsent)
            sent = 0
            if not was_waiting:
                with contextlib.suppress(BlockingIOError):
                    sent = super().send(data, flags | socket.MSG_DONTWAIT)
            self._unsent += data[sent:]
            is_waiting = bool(self._unsent)
        if is_waiting and not was_waiting:
            with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
                loop.call_soon_threadsafe(self._wait_for_room)
        return len(data)

    @property
    def unsent_bytes(self) -> int:
        """What the kernel has not taken yet."""
        return len(self._unsent) if self._loop is not None else 0

    @property
    def next_size(self) -> int | None:
        """First word of what was read ahead and not taken; `None` while that has not come whole."""
        word = self._ahead[self._at : self._at + 4]
        return int.from_bytes(word, "big") if len(word) == 4 else None

    @property
    def ahead_bytes(self) -> int:
        """How much can be taken."""
        return len(self._ahead) - self._at

    @property
    def has_ended(self) -> bool:
        """Whether the event loop came to the end, or to an error that the next read raises."""
        return self._ended

    @property
    def peer_address(self) -> str:
        """IP address of the other end, without an interface suffix."""
        return str(self.getpeername()[0]).partition("%")[0]

    def prepare(self) -> None:
        """Set the options that make small messages fast and a dead link known within seconds."""
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_LINK_MS)
        self.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_PROBE_S)
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_INTERVAL_S)

    def follow(self, loop: asyncio.AbstractEventLoop, on_input: Callable[[], None]) -> None:
        """From now on `loop` reads, and calls `on_input` for what came and at the end. Called on it, as is `leave`."""
        self._sending = threading.Lock()
        self._unsent = bytearray()
        self._on_input = on_input
        self._loop = loop
        self._followed_fd = self.fileno()
        loop.add_reader(self._followed_fd, self._read_ahead)

    def leave(self) -> None:
        """Have the event loop let go of it; to be called before it is closed, or in `on_input` after. Safe twice."""
        if self._loop is not None and self._followed_fd >= 0:
            self._loop.remove_reader(self._followed_fd)
            self._loop.remove_writer(self._followed_fd)
            with self._sending:
                self._followed_fd = -1
                self._unsent.clear()

    def _read_ahead(self) -> None:
        try:
            data = super().recv(LOOP_READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except TimeoutError as error:
            # The kernel gave the link up. paramiko would take that for a read without an answer, and read on for ever.
            self._failure = ConnectionAbortedError(error.errno, error.strerror)
            data = b""
        except OSError as error:
            self._failure = error
            data = b""
        if data:
            self._ahead = self._ahead[self._at :] + data if self._ahead else data
            self._at = 0
            self._acknowledge()
        else:
            self._ended = True
            self.leave()
        self._on_input()

    def _acknowledge(self) -> None:
        with contextlib.suppress(OSError):
            self.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def _wait_for_room(self) -> None:
        if self._loop is not None and self._followed_fd >= 0:
            self._loop.add_writer(self._followed_fd, self._send_waiting)

    def _send_waiting(self) -> None:
        with self._sending:
            try:
                del self._unsent[: super().send(self._unsent, socket.MSG_DONTWAIT)]
            except BlockingIOError:
                return
            except OSError:
                self._unsent.clear()  # The reader learns of it as well.
            is_done = not self._unsent
        if is_done and self._loop is not None:
            self._loop.remove_writer(self._followed_fd)
