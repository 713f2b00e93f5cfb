"""JSON objects over a socket between daemon, template, fork server and launcher; descriptors may come along."""

from __future__ import annotations

import array
import contextlib
import json
import select
import socket
from collections.abc import Iterator
from typing import Any

CHUNK_BYTES = 65536


def notice(code: str, **values: str | int) -> dict[str, Any]:
    """Return one of the agent's sentences, whose catalogue is not here, as the agent takes it."""
    return {"code": code, "values": values}


class Channel:
    """JSON objects, one a line, over a socket; descriptors may come along."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._rest = b""
        self.descriptors: list[int] = []

    def send(self, body: dict[str, Any]) -> None:
        """Send one; that nobody reads it any more is no mistake."""
        with contextlib.suppress(OSError):
            self.connection.sendall(json.dumps(body).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """Return the next one, waiting as the socket's time-out says; `None` where there will be no more."""
        while b"\n" not in self._rest:
            room = socket.CMSG_SPACE(8 * array.array("i").itemsize)
            try:
                data, ancillary, _flags, _address = self.connection.recvmsg(CHUNK_BYTES, room, socket.MSG_CMSG_CLOEXEC)
            except ConnectionError:
                return None
            for level, kind, packed in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    numbers = array.array("i")
                    numbers.frombytes(packed[: len(packed) - len(packed) % numbers.itemsize])
                    self.descriptors.extend(numbers)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        body = json.loads(line)
        return body if isinstance(body, dict) else None

    def pending(self) -> Iterator[dict[str, Any]]:
        """Yield those that are there already."""
        while b"\n" in self._rest or select.select([self.connection], [], [], 0)[0]:
            body = self.receive()
            if body is None:
                return
            yield body
