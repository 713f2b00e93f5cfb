"""What paramiko reads packets from, on every route: no peer makes a read longer than SSH's own limit of a packet."""

from __future__ import annotations

from typing import NoReturn, Protocol

import paramiko

from dttui.i18n import _

MAX_PACKET_BYTES = 256 * 1024
"""OpenSSH's limit too. Also of all that a server says before its first packet."""
LENGTH_BYTES = 4
MAX_SHORT_READS = 8
"""Fields that a server may leave out at the end of a packet; more are no oversight."""


class BytePipe(Protocol):
    """A TCP socket, the socket of a command, or another connection's channel."""

    def recv(self, size: int, /) -> bytes:
        """Return some bytes, at most so many; none at the end."""

    def send(self, data: bytes, /) -> int:
        """Take some bytes; return how many."""

    def close(self) -> None:
        """Let go of it."""


class BoundedPipe:
    """A byte pipe for paramiko, which reads what is left of a packet at once, as much as its sender announced.

    A read that is too long is refused before a byte of it is taken in, and so is every read after it.
    """

    def __init__(self, pipe: BytePipe) -> None:
        """Read from `pipe`, and write to it."""
        self._pipe = pipe
        self.send = pipe.send
        self.close = pipe.close
        self._said = b""
        self._greeting_left: int | None = MAX_PACKET_BYTES
        self._ahead = b""
        """What came with a line of the greeting and is none of it: paramiko must not count it as read."""
        self.mac_bytes = 0
        """How much of a read may be the packet's signature."""
        self.refusal = ""
        """What the other side did, where it was too much."""

    def greet(self, line: bytes) -> None:
        """Send paramiko's first line ahead of it. Raises OSError."""
        self._pipe.send(line)
        self._said = line
        self.send = self._send_unless_said

    def recv(self, size: int) -> bytes:
        """Read. Raises SSHException where that is too much, and what the pipe raises."""
        # One block has been read by now, the length and at least 4 bytes more.
        if size - self.mac_bytes > MAX_PACKET_BYTES - LENGTH_BYTES:
            self.refuse_packet()
        if self.refusal:
            raise paramiko.SSHException(self.refusal)
        data, self._ahead = (self._ahead[:size], self._ahead[size:]) if self._ahead else (self._pipe.recv(size), b"")
        if self._greeting_left is not None:
            line, end, ahead = data.partition(b"\n")
            data, self._ahead = line + end, ahead + self._ahead
            self._greeting_left -= len(data)
            if self._greeting_left < 0:
                self._refuse(_("what it says before its first packet is longer than {limit} bytes (256 KiB)"))
        return data

    def begin_packets(self) -> None:
        """What comes before the first packet has come."""
        self._greeting_left = None

    def refuse_packet(self) -> NoReturn:
        """Take no more, after a packet that is too long was announced. Raises SSHException."""
        self._refuse(_("it announced a packet of more than {limit} bytes (256 KiB)"))

    def _send_unless_said(self, data: bytes) -> int:
        count = min(len(data), len(self._said))
        if not count or data[:count] != self._said[:count]:
            self.send = self._pipe.send
            return self.send(data)
        self._said = self._said[count:]
        return count

    def _refuse(self, text: str) -> NoReturn:
        self.refusal = text.format(limit=MAX_PACKET_BYTES)
        raise paramiko.SSHException(self.refusal)


class BoundedMessage(paramiko.Message):
    """A packet that ends. paramiko reads zeros after the end of one, for as many things as its sender counted."""

    _short_reads = 0

    def get_bytes(self, n: int) -> bytes:
        """Return so many bytes. Raises SSHException where that goes on and on after the end."""
        before = self.packet.tell()
        data = super().get_bytes(n)
        if self.packet.tell() - before < n:
            self._short_reads += 1
            if self._short_reads > MAX_SHORT_READS:
                raise paramiko.SSHException(_("a packet says it holds more than it does"))
        return data
