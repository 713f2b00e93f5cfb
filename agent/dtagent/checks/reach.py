"""Whether this host reaches a listener on another one, how fast, and what stands in the way. Blocks."""

from __future__ import annotations

import errno
import select
import socket
import statistics
import struct
import time

from dtagent.protocol.probes import LOAD, MAX_LOAD_BYTES, MAX_LOAD_S, PING, TOTAL, Reached, ReachOutcome, ReachTarget
from dtagent.protocol.said import Said
from dtagent.system.interfaces import interface_toward

CHUNK_BYTES = 1 << 20
MAX_PINGS = 32

_REFUSED = frozenset({errno.ECONNREFUSED, errno.ECONNRESET})
_NO_ROUTE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, errno.EACCES})


class _StrangerError(Exception):
    """Who answered is not the listener."""


def reach(target: ReachTarget, seconds: float) -> Reached:
    """Connect, show the token, measure.

    Args:
        target: the listener.
        seconds: how long all but the load may take; a name that is looked up for longer is not waited for by this.
    """
    deadline = time.monotonic() + seconds
    try:
        found = socket.getaddrinfo(target.address, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Reached(ReachOutcome.UNRESOLVED, detail=Said(getattr(error, "strerror", None) or str(error)))
    addresses = list(dict.fromkeys((family, place) for family, _, _, _, place in found))
    first: Reached | None = None
    for index, (family, place) in enumerate(addresses):
        # An address that does not answer must leave some time for the next.
        share_s = max(deadline - time.monotonic(), 0.0) / (len(addresses) - index)
        result = _try(family, place, target, share_s)
        if result.outcome is ReachOutcome.REACHED:
            return result
        first = first or result
    return first or Reached(ReachOutcome.UNRESOLVED)


def _try(family: int, place: tuple[object, ...], target: ReachTarget, seconds: float) -> Reached:
    deadline = time.monotonic() + seconds
    address = str(place[0])
    interface, source = interface_toward(address)
    try:
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.settimeout(max(seconds, 0.001))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Closing resets, so that what was sent and not read yet does not go on over the network.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.connect(place)
            source = str(connection.getsockname()[0])
            round_trip_s = _greet(connection, target, deadline)
            bytes_per_s = _load(connection, target) if target.load_bytes > 0 else None
    except _StrangerError:
        return Reached(ReachOutcome.STRANGER, address, source, interface)
    except TimeoutError:
        return Reached(ReachOutcome.TIMED_OUT, address, source, interface)
    except OSError as error:
        return Reached(_outcome(error), address, source, interface, detail=Said(error.strerror or str(error)))
    return Reached(ReachOutcome.REACHED, address, source, interface, round_trip_s, bytes_per_s)


def _greet(connection: socket.socket, target: ReachTarget, deadline: float) -> float:
    """Show the token; return the median round trip in seconds."""
    trips = []
    shown = target.token.encode()
    for _ in range(min(max(target.pings, 1), MAX_PINGS) + 1):
        began = time.perf_counter()
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            connection.sendall(shown + PING)
            answer = connection.recv(1)
        except (ConnectionError, TimeoutError) as error:  # It did let us in.
            raise _StrangerError from error
        shown = b""
        if answer != PING:
            raise _StrangerError
        trips.append(time.perf_counter() - began)
    return statistics.median(trips[1:])  # The first one wakes up both sides.


def _load(connection: socket.socket, target: ReachTarget) -> float | None:
    """Send the load, or what of it can be sent in time; return the bytes a second that arrived."""
    size = min(target.load_bytes, MAX_LOAD_BYTES)
    chunk = memoryview(bytes(CHUNK_BYTES))
    connection.sendall(LOAD + TOTAL.pack(size))
    connection.setblocking(False)
    began = time.perf_counter()
    deadline = began + min(target.load_s, MAX_LOAD_S)
    sent, told, answer = 0, 0, b""
    marks: list[tuple[float, int]] = [(began, 0)]
    while told < size:
        left_s = deadline - time.perf_counter()
        if left_s <= 0:
            break
        readable, writable, _ = select.select([connection], [connection] if sent < size else [], [], left_s)
        if writable:
            sent += connection.send(chunk[: min(CHUNK_BYTES, size - sent)])
        if readable:
            data = connection.recv(4096)
            if not data:
                raise _StrangerError
            answer += data
            whole = len(answer) // TOTAL.size * TOTAL.size
            if whole:
                (told,) = TOTAL.unpack_from(answer, whole - TOTAL.size)
                marks.append((time.perf_counter(), told))
                answer = answer[whole:]
    return _rate(marks)


def _rate(marks: list[tuple[float, int]]) -> float | None:
    """Return bytes a second, without the time until the first word came back where there are enough others."""
    if len(marks) < 2:
        return None
    (begin, before), (end, after) = marks[1 if len(marks) > 4 else 0], marks[-1]
    return (after - before) / (end - begin) if end > begin and after > before else None


def _outcome(error: OSError) -> ReachOutcome:
    if error.errno in _REFUSED:
        return ReachOutcome.REFUSED
    if error.errno in _NO_ROUTE:
        return ReachOutcome.NO_ROUTE
    return ReachOutcome.TIMED_OUT if error.errno == errno.ETIMEDOUT else ReachOutcome.FAILED
