"""`dtagent connect`: carries bytes between stdio and the daemon's socket, starting the daemon when there is none.

Imports as little as it can, since a person waits for it: no pathlib, no typing, no contextlib, and of this package only
what they do not hang on. All that is out of the ordinary is for `daemon_start`, which is imported when it is needed.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import sys
import time

from dtagent.daemon.dialling import dial, owner_of
from dtagent.errors import DtagentError
from dtagent.names import ERROR_LOG
from dtagent.protocol.first_line import MAGIC, REFUSAL

SILENCE_S = 60.0
"""A client that has sent nothing for so long is gone, even if its connection does not know yet."""
READ_BYTES = 65536


def connect(root: str, daemon_options: list[str]) -> int:
    """Bridge until either side ends; return the exit status.

    Raises:
        DtagentError: the root or the socket in it cannot be trusted; the daemon is stuck; stdin or stdout is closed.
    """
    try:
        mode = os.fstat(1).st_mode
        os.fstat(0)
    except OSError as error:
        from dtagent.protocol import sentences

        raise DtagentError(sentences.STDIO_CLOSED()) from error
    try:
        channel = _dial_at_once(root)
        if channel is None:
            from dtagent.daemon import daemon_start

            channel = daemon_start.wake(root, daemon_options)
    except ConnectionError:  # The client hung up meanwhile.
        return 0
    if channel is None:
        from dtagent.protocol import sentences

        raise DtagentError(sentences.DAEMON_NOT_STARTED(path=f"{root}/{ERROR_LOG}"))
    # Writes are to fail rather than wait; a terminal is left alone, since others write to it too.
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


def _dial_at_once(root: str) -> socket.socket | None:
    """Return a connection where a daemon of ours serves a directory that is ours alone: it has checked all the rest."""
    try:
        info = os.lstat(root)
    except OSError:
        return None
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        return None
    channel = dial(root, (0, 1))
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


def _poll(channel: socket.socket, *, reads_client: bool, to_client: memoryview, to_daemon: memoryview) -> select.poll:
    """Return what waits for all that can be done now."""
    poll = select.poll()
    if reads_client:
        poll.register(0, select.POLLIN)
    # Without an event that is waited for, it still tells when nobody reads there any more.
    poll.register(1, select.POLLOUT if to_client else 0)
    if events := (0 if to_client else select.POLLIN) | (select.POLLOUT if to_daemon else 0):
        poll.register(channel, events)
    return poll


def _receive(channel: socket.socket) -> memoryview:
    """Return what the daemon sent; nothing once it is gone."""
    try:
        return memoryview(channel.recv(READ_BYTES))
    except ConnectionError:  # It has not read all that was sent.
        return memoryview(b"")


def _send(channel: socket.socket, data: memoryview) -> tuple[memoryview, bool]:
    """Send the daemon what it takes; return what is left, and whether it still takes anything."""
    try:
        return data[channel.send(data) :], True
    except BlockingIOError:
        return data, True
    except ConnectionError:  # It may have said why before it hung up.
        return memoryview(b""), False


def _carry(channel: socket.socket) -> int:
    """Carry until a side ends. Neither side is read while what it sent before is still to be passed on."""
    to_client = to_daemon = memoryview(b"")
    is_heard = True
    """Whether the daemon still takes what is sent to it."""
    beginning = b""
    """Of what it said."""
    deadline = time.monotonic() + SILENCE_S
    while (remaining_s := deadline - time.monotonic()) > 0:
        poll = _poll(channel, reads_client=is_heard and not to_daemon, to_client=to_client, to_daemon=to_daemon)
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
                to_client = _receive(channel)
                if not to_client:
                    return int(not is_heard or beginning.startswith(REFUSAL))
                if len(beginning) < len(REFUSAL):
                    beginning += to_client[: len(REFUSAL)]
        if to_daemon:
            to_daemon, is_heard = _send(channel, to_daemon)
        if to_client:
            to_client = to_client[_write(to_client) :]
    sys.stderr.write("dtagent: no word from the client for a minute\n")
    return 1
