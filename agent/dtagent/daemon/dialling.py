"""Connecting to the daemon's socket, without waiting for ever where the daemon has no room.

Imports as little as the bridge, which uses it.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import sys
import time

from dtagent.errors import DtagentError
from dtagent.names import SOCKET

KNOCK_S = 20.0
"""How long a daemon may take to make room for a connection, where others wait for that too."""
KNOCK_PAUSE_MS = 20
_CREDENTIALS = 12
"""Bytes of `struct ucred`: pid, uid, gid."""
_HUNG_UP = select.POLLHUP | select.POLLERR | select.POLLRDHUP


class StuckError(DtagentError):
    """There is a daemon, but it does not take the connection."""


def dial(root: str, watched: tuple[int, ...] = (), patience_s: float | None = None) -> socket.socket | None:
    """Return a connection to whoever listens on the socket in a directory, `None` where nobody does.

    Args:
        root: the directory; the socket's whole path may be longer than an address allows.
        watched: descriptors whose other end is the client; while the daemon has no room, they are looked at.
        patience_s: how long the daemon may have no room; `None` for `KNOCK_S`.

    Raises:
        StuckError: the daemon had no room for too long.
        ConnectionResetError: the client hung up meanwhile.
    """
    try:
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    channel.setblocking(False)
    try:
        _knock(channel, f"/proc/self/fd/{directory}/{SOCKET}", watched, KNOCK_S if patience_s is None else patience_s)
    except (StuckError, ConnectionResetError):
        channel.close()
        raise
    except OSError:
        channel.close()
        return None
    finally:
        os.close(directory)
    if _is_orphaned(channel):
        channel.close()
        return None
    channel.setblocking(True)
    return channel


def _is_orphaned(channel: socket.socket) -> bool:
    """Whether who made the socket is gone, and nobody will ever answer there.

    A process that a daemon was starting when it was killed has its socket, until it has become another program.
    """
    pid = int.from_bytes(_credentials_of(channel)[:4], sys.byteorder)
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return stream.read().rpartition(b") ")[2][:1] in (b"Z", b"X")
    except OSError:
        pass
    try:
        if pid > 0:  # It is 0 where it is of another namespace.
            os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


def _knock(channel: socket.socket, address: str, watched: tuple[int, ...], patience_s: float) -> None:
    """Connect, which a Unix socket refuses to do later, and would wait for without end, where the queue is full."""
    poll = select.poll()
    for descriptor in watched:
        poll.register(descriptor, select.POLLRDHUP)
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return channel.connect(address)
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
        if any(event & _HUNG_UP for _, event in poll.poll(KNOCK_PAUSE_MS)):
            raise ConnectionResetError(errno.ECONNRESET, "the client hung up")
        if time.monotonic() > deadline:
            from dtagent.protocol import sentences

            raise StuckError(sentences.DAEMON_STUCK(seconds=f"{patience_s:g}"))


def owner_of(channel: socket.socket) -> int:
    """Return the user id of the process at the other end."""
    return int.from_bytes(_credentials_of(channel)[4:8], sys.byteorder)


def _credentials_of(channel: socket.socket) -> bytes:
    return channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS)
