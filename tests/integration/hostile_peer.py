"""An SSH server that announces packets, and sends greetings, longer than any server's; before and after the login."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import tracemalloc
from collections.abc import Iterator

CHUNK = b"\x00" * 65536
FLOOD_BYTES = 96 * 1024 * 1024
"""So much is sent at most, where the other end takes it."""
VERSION = b"SSH-2.0-hostile\r\n"


@contextlib.contextmanager
def flooding_peer(opening: bytes, chunk: bytes = CHUNK) -> Iterator[int]:
    """Send each client an opening and then chunks without end, if any; yield the port of 127.0.0.1."""
    clients: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def flood(client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            client.sendall(opening)
            for _each in range(FLOOD_BYTES // len(chunk) if chunk else 0):
                client.sendall(chunk)
            client.shutdown(socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client, _address = server.accept()
                except OSError:
                    return
                clients.append(client)
                threads.append(threading.Thread(target=flood, args=(client,)))
                threads[-1].start()

        accepting = threading.Thread(target=serve)
        accepting.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for client in clients:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
            for client in clients:
                client.close()


def announcing(size: int) -> bytes:
    """A version and the head of a first packet of so many bytes."""
    return VERSION + struct.pack(">IB", size, 4)


def packet(payload: bytes, padding: int = 4) -> bytes:
    """A packet as it goes over the wire before any key is agreed on; `padding` is made up to a whole block."""
    padding = next(count for count in itertools.count(padding) if (5 + len(payload) + count) % 8 == 0)
    return struct.pack(">IB", 1 + len(payload) + padding, padding) + payload + bytes(padding)


@contextlib.contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Measure the most bytes that Python held above what it held before, in the list once the block ends."""
    peak: list[int] = []
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield peak
        peak.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
