"""The key-value store over HTTP by which the ranks of a Horovod job find each other. Standard library only.

usage: horovod_rendezvous.py serve ADDRESS PORT SIZE | horovod_rendezvous.py await COMMAND [ARG ...]

`serve` answers what Horovod's client asks (horovod/common/gloo/http_store.cc): PUT and GET of /SCOPE/KEY, 404 for what
is not there, and DELETE /SCOPE/RANK from each rank once all have found each other. `await` starts a rank as soon as
that can be reached: the client itself would give up after a second and a half.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
import sys
import time

MOST_HEAD_BYTES = 8 * 1024
REQUEST_S = 10.0
"""How long a request may take to come, and its answer to be taken."""
HOLD_S = 1.0
"""How long the answer to a question for the addresses of a rank waits for them. The client would ask a hundred times a
second otherwise, and while it waits for an answer its connection shows that its rank waits for others."""
RETRY_S = 0.2
ROOM_BYTES = 16 << 20
ADDRESS_BYTES = 320
"""More than the address of one rank for one other takes, which are 136 with Gloo."""
SPARE_CONNECTIONS = 64


class RequestRefusedError(Exception):
    """A request that is not carried out; `status` says why."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class RendezvousStore:
    """What ranks tell each other, within bounds: each puts the addresses that it has for all others."""

    def __init__(self, size: int) -> None:
        self.most_value_bytes = (64 << 10) + ADDRESS_BYTES * size
        self._most_bytes = ROOM_BYTES + ADDRESS_BYTES * size * size
        self._values: dict[str, dict[str, bytes]] = {}
        self._finished: dict[str, set[str]] = {}
        """Of each scope the ranks that have found all others, of those that are in it."""
        self._bytes = 0
        self.changed = asyncio.Event()
        """Set, and replaced by another, when something is put."""

    def get(self, scope: str, key: str) -> bytes | None:
        """Return a value; `None` where there is none."""
        return self._values.get(scope, {}).get(key)

    def put(self, scope: str, key: str, value: bytes) -> None:
        """Keep a value. Raises RequestRefusedError where there is no room."""
        values = self._values.get(scope, {})
        cost = _cost(scope, key, value) - (_cost(scope, key, values[key]) if key in values else 0)
        if self._bytes + cost > self._most_bytes:
            raise RequestRefusedError(507)
        self._values.setdefault(scope, values)[key] = value
        self._bytes += cost
        self._finished.get(scope, set()).discard(key)
        self.changed.set()
        self.changed = asyncio.Event()

    def finish(self, scope: str, rank: str) -> None:
        """Note that a rank has found all others; forget a scope of which all have, as a `hvd.init` may use it again.

        Until then others may ask once more for what the rank has told.
        """
        values = self._values.get(scope, {})
        if rank not in values or not rank.isdigit():
            return
        finished = self._finished.setdefault(scope, set())
        finished.add(rank)
        if finished == {key for key in values if key.isdigit()}:
            self._bytes -= sum(_cost(scope, key, value) for key, value in values.items())
            del self._values[scope], self._finished[scope]


def _cost(scope: str, key: str, value: bytes) -> int:
    return len(scope) + len(key) + len(value) + 256


class Server:
    """Answers one request a connection, as its clients want it; whatever else comes costs that connection alone."""

    def __init__(self, size: int) -> None:
        self._store = RendezvousStore(size)
        self.usual_connections = size + SPARE_CONNECTIONS
        """More than ranks make: beyond that, no answer waits; beyond twice that, connections are ended."""
        self._connections = 0
        self._silent: dict[asyncio.StreamWriter, None] = {}
        """Connections whose request has not come yet, the oldest first."""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection; of too many, the one goes that has been silent for longest."""
        self._connections += 1
        self._silent[writer] = None
        if self._connections > 2 * self.usual_connections:
            next(iter(self._silent)).transport.abort()
        try:
            with contextlib.suppress(OSError, EOFError, asyncio.TimeoutError):
                await self._exchange(reader, writer)
        finally:
            self._connections -= 1
            self._silent.pop(writer, None)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            method, scope, key, body = await asyncio.wait_for(self._request(reader), REQUEST_S)
            self._silent.pop(writer, None)
            value = await self._carry_out(method, scope, key, body)
            status = 404 if value is None else 200
        except RequestRefusedError as refused:
            status, value = refused.status, None
        body = value or b""
        writer.write(b"HTTP/1.1 %d -\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body)) + body)
        await asyncio.wait_for(writer.drain(), REQUEST_S)

    async def _request(self, reader: asyncio.StreamReader) -> tuple[str, str, str, bytes]:
        """Read a request; return its method, scope, key and body."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.LimitOverrunError as error:
            raise RequestRefusedError(431) from error
        first, *lines = head[:-4].split("\r\n")
        words = first.split(" ")
        parts = words[1].split("/") if len(words) == 3 and words[2].startswith("HTTP/1.") else []
        if len(parts) != 3 or parts[0] or not parts[1] or not parts[2]:
            raise RequestRefusedError(400)
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = fields.get("content-length", "0")
        if "transfer-encoding" in fields or not (length.isascii() and length.isdigit()):
            raise RequestRefusedError(400)
        if len(length) > 12 or int(length) > self._store.most_value_bytes:
            raise RequestRefusedError(413)
        return words[0], parts[1], parts[2], await reader.readexactly(int(length))

    async def _carry_out(self, method: str, scope: str, key: str, body: bytes) -> bytes | None:
        if method == "GET":
            return await self._awaited(scope, key)
        if method == "PUT":
            self._store.put(scope, key, body)
        elif method == "DELETE":
            self._store.finish(scope, key)
        else:
            raise RequestRefusedError(405)
        return b""

    async def _awaited(self, scope: str, key: str) -> bytes | None:
        """Return a value, waited for where it is the addresses of a rank: for other keys no client waits."""
        deadline = time.monotonic() + HOLD_S
        while True:
            value, changed = self._store.get(scope, key), self._store.changed
            left_s = deadline - time.monotonic()
            is_crowded = self._connections > self.usual_connections
            if value is not None or not key.isdigit() or left_s <= 0 or is_crowded:
                return value
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(changed.wait(), left_s)


async def serve(address: str, port: int, size: int) -> None:
    """Listen on an address until killed; on all addresses where others may not find this host by that one.

    Raises:
        OSError: the port is taken.
    """
    server = Server(size)
    own = only_address(address)
    try:
        listener = await _listen(server, own, port)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:  # As behind a router that translates addresses.
            raise
        own = None
        listener = await _listen(server, None, port)
    if own is None:
        print(f"{address} is no address of this host that others could reach: listening on all", flush=True)
    print(f"{size} ranks can meet at {address}, port {port}", flush=True)
    async with listener:
        await listener.serve_forever()


def only_address(address: str) -> str | None:
    """Return the one address to listen on for a name or address; `None` for all.

    Many a host takes its own name for 127.0.1.1, where nobody else reaches it.
    """
    try:
        found = {str(item[4][0]) for item in socket.getaddrinfo(address, None, socket.AF_INET, socket.SOCK_STREAM)}
    except OSError:
        return None
    is_name = address not in found and address != "localhost"
    return None if is_name and any(item.startswith("127.") for item in found) else min(found)


async def _listen(server: Server, address: str | None, port: int) -> asyncio.AbstractServer:
    # The client knows no IPv6.
    return await asyncio.start_server(
        server.answer, address, port, family=socket.AF_INET, limit=MOST_HEAD_BYTES, backlog=server.usual_connections
    )


def can_reach(address: str, port: int, limit_s: float) -> bool:
    """Wait until something listens there; return whether that was in time."""
    deadline = time.monotonic() + limit_s
    while True:
        left_s = deadline - time.monotonic()
        try:
            socket.create_connection((address, port), timeout=max(RETRY_S, left_s)).close()
            return True
        except OSError:
            if left_s <= 0:
                return False
            time.sleep(RETRY_S)


def main(argv: list[str]) -> int:
    """Serve, or start a rank once that can be reached; return an exit status."""
    if argv[0] == "serve":
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        address, port, size = argv[1:]
        try:
            asyncio.run(serve(address, int(port), int(size)))
        except OSError as error:
            print(f"dttui: no rendezvous at {address}, port {port}: {error}", file=sys.stderr)
        return 1
    address, port = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"]
    limit_s = float(os.environ.get("HOROVOD_GLOO_TIMEOUT_SECONDS", "30"))
    if not can_reach(address, int(port), limit_s):
        print(f"dttui: nothing answers at {address}, port {port}, after {limit_s:g} s", file=sys.stderr)
        return 1
    return os.execvp(argv[1], argv[1:])  # noqa: S606 - the rank becomes this process


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
