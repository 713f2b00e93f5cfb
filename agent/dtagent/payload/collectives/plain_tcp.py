"""A plain TCP connection between two hosts, which has nothing of torch in it: how long 8 bytes take one way."""

from __future__ import annotations

import socket
import statistics
import time

TCP_TRIPS, TCP_S, TCP_BYTES = 300, 5.0, 8
"""How often there and back, how many seconds it is waited for, and what goes over it."""


def answer(listener: socket.socket, secret: bytes) -> None:
    """Send back what comes from the one that knows the secret. Raises OSError where nobody does in time."""
    ends_at = time.monotonic() + TCP_S
    while (left_s := ends_at - time.monotonic()) > 0:
        listener.settimeout(left_s)
        stream = listener.accept()[0]
        with stream:
            stream.settimeout(TCP_S)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if stream.recv(TCP_BYTES, socket.MSG_WAITALL) == secret:
                stream.sendall(secret)
                for _trip in range(TCP_TRIPS):
                    stream.sendall(stream.recv(TCP_BYTES))
                return


def ask(address: str, port: int, secret: bytes) -> float:
    """Return the median seconds one way. Raises OSError where the other does not answer in time."""
    taken = []
    with socket.create_connection((address, port), TCP_S) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _trip in range(TCP_TRIPS + 1):
            began = time.perf_counter()
            stream.sendall(secret)
            if not stream.recv(TCP_BYTES):
                raise ConnectionResetError
            taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:]) / 2
