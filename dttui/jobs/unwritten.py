"""What a job's controller could not write down yet, heard over its socket: a full disk keeps nobody in the dark."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
import weakref
from pathlib import Path

from dtagent.protocol import rpc
from dtagent.protocol.events import Event

from dttui.jobs.event_log import parse_event

ANSWER_S = 1.0
"""How long a controller may take to tell what it has; one that is stopped does not."""
RETRY_S = 0.5
"""Between two tries to reach one that is not there."""
READ_BYTES = 1 << 18


class Unwritten:
    """A conversation with the controller that owns a job, whichever that is by now.

    Args:
        path: of its socket.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._link: socket.socket | None = None
        self._frames = rpc.FrameReader()
        self._tried_at: float | None = None
        self.has_answered = False
        """Whether the controller that is talked to has told what it had by then."""

    def read(self, wait_s: float = 0.0) -> list[Event]:
        """Return the events that were told since the last call.

        Args:
            wait_s: for the first answer, at most.
        """
        found: list[Event] = []
        deadline = time.monotonic() + wait_s
        while self._connect():
            data = self._receive(0.0 if self.has_answered else max(0.0, deadline - time.monotonic()))
            if data is None:
                break
            found += self._take(data)
        return found

    def close(self) -> None:
        """Leave; the job goes on."""
        if self._link is not None:
            self._link.close()
        self._link, self.has_answered = None, False

    def _connect(self) -> bool:
        """Whether there is a connection now; it is tried from time to time."""
        if self._link is not None:
            return True
        now = time.monotonic()
        if self._tried_at is not None and now - self._tried_at < RETRY_S:
            return False
        self._tried_at = now
        link = _dial(self._path)
        if link is not None:
            weakref.finalize(self, link.close)
            self._link, self._frames = link, rpc.FrameReader()
        return link is not None

    def _receive(self, wait_s: float) -> bytes | None:
        """Return what has come, `None` where nothing has or nobody is there any more."""
        link = self._link
        if link is None or not _has_come(link, wait_s):
            return None
        with contextlib.suppress(OSError):
            if data := link.recv(READ_BYTES):
                return data
        self.close()
        return None

    def _take(self, data: bytes) -> list[Event]:
        found = []
        try:
            for line in self._frames.feed(data):
                message = rpc.decode(line)
                self.has_answered = self.has_answered or message.get("method") == "told"
                if message.get("method") == "event":
                    found.append(parse_event(str(message.get("line")).encode()))
        except rpc.FrameError:
            self.close()
        return [event for event in found if event is not None]


def unwritten_events(path: Path) -> list[Event] | None:
    """Return what the controller behind a socket could not write down; `None` where none answers."""
    watching = Unwritten(path)
    try:
        found = watching.read(ANSWER_S)
        return found if watching.has_answered else None
    finally:
        watching.close()


def _has_come(link: socket.socket, wait_s: float) -> bool:
    poller = select.poll()  # To select.select descriptors from 1,024 on are unknown.
    poller.register(link, select.POLLIN)
    return bool(poller.poll(wait_s * 1000))


def _dial(path: Path) -> socket.socket | None:
    """Return a connection that watches, through a descriptor: the path may be longer than a socket address allows."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            link.setblocking(False)
            link.connect(f"/proc/self/fd/{descriptor}/{path.name}")
            link.send(rpc.encode({"method": "watch"}))
        finally:
            os.close(descriptor)
    except OSError:
        link.close()
        return None
    return link
