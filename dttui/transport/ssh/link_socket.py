"""The socket SSH runs on: small messages at once, and a link that is dead known within seconds."""

from __future__ import annotations

import contextlib
import socket
import struct

DEAD_LINK_MS = 8000
"""A peer that acknowledges nothing for so long is gone. TCP alone takes a quarter of an hour to notice."""
IDLE_PROBE_S = 5
PROBE_INTERVAL_S = 2
AHEAD_BYTES = 2048
"""Read at once at least: most packets fit."""


class LinkSocket(socket.socket):
    """A TCP socket that acknowledges at once: the server's Nagle otherwise waits 40 ms for each small answer.

    It reads ahead, since paramiko asks for a packet in pieces. A thread may wait in it, with a time limit that the
    kernel keeps.
    """

    _ahead = b""
    _at = 0
    """How much of what was read ahead has been taken."""
    _limit_s: float | None = None

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
            try:
                self._ahead = super().recv(max(bufsize, AHEAD_BYTES), flags)
            except BlockingIOError as error:
                raise TimeoutError from error
            except TimeoutError as error:  # The kernel gave the link up. paramiko would read on.
                raise ConnectionAbortedError(error.errno, error.strerror) from error
            self._at = 0
            self._acknowledge()
        data = self._ahead[self._at : self._at + bufsize]
        self._at += len(data)
        if self._at == len(self._ahead):
            self._ahead, self._at = b"", 0
        return data

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

    def _acknowledge(self) -> None:
        with contextlib.suppress(OSError):
            self.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
