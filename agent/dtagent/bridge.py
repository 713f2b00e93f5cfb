"""`dtagent connect`: carries bytes between stdio and the daemon's socket, starting the daemon when there is none.

Imports as little as it can, since a person waits for it: no pathlib, no typing, no contextlib, and of this package only
what they do not hang on. All that is out of the ordinary is for `waking`, which is imported when it is needed.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import sys
import time

from dtagent.names import SOCKET
from dtagent.protocol.first_line import MAGIC

SILENCE_S = 60.0
"""A client that has sent nothing for so long is gone, even if its connection does not know yet."""
READ_BYTES = 65536
_CREDENTIALS = 12
"""Bytes of `struct ucred`: pid, uid, gid."""


def connect(root: str, daemon_options: list[str]) -> int:
    """Bridge until either side ends; return the exit status.

    Raises:
        AgentError: the root or the socket in it cannot be trusted.
    """
    channel = _dial_at_once(root)
    if channel is None:
        from dtagent import waking

        channel = waking.wake(root, daemon_options)
    if channel is None:
        sys.stderr.write(f"dtagent: the daemon did not start; see {root}/daemon.err\n")
        return 1
    # Writes are to fail rather than wait; a terminal is left alone, since others write to it too.
    mode = os.fstat(1).st_mode
    is_pipe = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    if is_pipe:
        os.set_blocking(1, False)
    try:
        channel.setblocking(False)
        os.write(1, MAGIC)
        return _carry(channel)
    except ConnectionError:  # Either side is gone; nobody is left to be told.
        return 0
    finally:
        channel.close()
        if is_pipe:
            os.set_blocking(1, True)


def dial() -> socket.socket | None:
    """Return a connection to whoever listens on the socket of the working directory."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        channel.connect(SOCKET)
    except OSError:
        channel.close()
        return None
    return channel


def owner_of(channel: socket.socket) -> int:
    """Return the user id of the process at the other end."""
    credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def _dial_at_once(root: str) -> socket.socket | None:
    """Return a connection where a daemon of ours serves a directory that is ours alone: it has checked all the rest."""
    try:
        info = os.lstat(root)
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
            return None
        os.chdir(root)
    except OSError:
        return None
    channel = dial()
    if channel is not None and owner_of(channel) != os.getuid():
        channel.close()
        return None
    return channel


def _write(data: memoryview) -> int:
    """Write to stdout what it takes; return how many bytes that were."""
    try:
        return os.write(1, data)
    except BlockingIOError:
        return 0


def _carry(channel: socket.socket) -> int:
    """Carry until a side ends. Neither side is read while what it sent before is still to be passed on."""
    to_client = to_daemon = memoryview(b"")
    deadline = time.monotonic() + SILENCE_S
    while (remaining_s := deadline - time.monotonic()) > 0:
        poll = select.poll()
        if not to_daemon:
            poll.register(0, select.POLLIN)
        # Without an event that is waited for, it still tells when nobody reads there any more.
        poll.register(1, select.POLLOUT if to_client else 0)
        if events := (0 if to_client else select.POLLIN) | (select.POLLOUT if to_daemon else 0):
            poll.register(channel, events)
        for descriptor, event in poll.poll(remaining_s * 1000):
            if descriptor == 0:
                to_daemon = memoryview(os.read(0, READ_BYTES))
                if not to_daemon:
                    return 0
                deadline = time.monotonic() + SILENCE_S
            elif descriptor == 1:
                if not event & select.POLLOUT:
                    return 0
                to_client = to_client[_write(to_client) :]
            elif not to_client and event & ~select.POLLOUT:
                to_client = memoryview(channel.recv(READ_BYTES))
                if not to_client:
                    return 0
        if to_daemon:
            try:  # noqa: SIM105 - contextlib is an import that a person would wait for
                to_daemon = to_daemon[channel.send(to_daemon) :]
            except BlockingIOError:
                pass
        if to_client:
            to_client = to_client[_write(to_client) :]
    sys.stderr.write("dtagent: no word from the client for a minute\n")
    return 1
