"""What ranks have sent to other hosts and how long that took, by the kernel's own count of their TCP connections.

Asked of `sock_diag(7)`, whose answers hold a `struct tcp_info` each (Linux 4.10; `include/uapi/linux/tcp.h`). What goes
by RDMA has none.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dtagent.protocol.traffic import MOST_PEERS, PeerTraffic, TrafficReply

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_AND_DUMP = 0x1 | 0x300
_DONE, _ERROR = 3, 2
_ESTABLISHED = 1
_INFO = 2
"""The attribute that holds `struct tcp_info`."""
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI48x")
_MESSAGE = struct.Struct("=BBBBHH16s16sI8sIIIII")
_ATTRIBUTE = struct.Struct("=HH")
_BYTES_ACKED = struct.Struct("=120xQ")
_TIMES_US = struct.Struct("=168xQQ")
"""How long there was something to send, and how long of that the receiver took nothing in."""
_ANSWER_BYTES = 1 << 18
_ANSWER_S = 5.0


@dataclass(frozen=True)
class _Connection:
    address: str
    inode: int
    sent_bytes: int
    busy_us: int


def read(pids: Iterable[int]) -> TrafficReply:
    """Return the traffic of some processes here; none where the kernel tells of none."""
    own = {inode for pid in pids for inode in _sockets_of(pid)}
    found: dict[str, list[_Connection]] = {}
    for family in (socket.AF_INET, socket.AF_INET6) if own else ():
        with contextlib.suppress(OSError):
            for connection in _connections(family):
                if connection.inode in own:
                    found.setdefault(connection.address, []).append(connection)
    peers = [
        PeerTraffic(
            address,
            len(connections),
            sum(item.sent_bytes for item in connections),
            round(sum(item.busy_us for item in connections) / 1e6, 6),
        )
        for address, connections in found.items()
    ]
    return TrafficReply(sorted(peers, key=lambda item: -item.sent_bytes)[:MOST_PEERS])


def _sockets_of(pid: int) -> set[int]:
    """Return the inodes of a process's sockets; none where it is gone or another user's."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError, ValueError):
                kind, _colon, inode = os.readlink(f"/proc/{pid}/fd/{name}").partition(":[")
                if kind == "socket":
                    found.add(int(inode.rstrip("]")))
    return found


def _connections(family: int) -> Iterator[_Connection]:
    """Yield the established TCP connections of this host's network namespace. Raises OSError."""
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 1 << _ESTABLISHED)
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _REQUEST_AND_DUMP, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(_ANSWER_S)
        link.sendto(header + request, (0, 0))
        while True:
            answer = link.recv(_ANSWER_BYTES)
            for kind, body in _messages(answer):
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    number = -struct.unpack_from("=i", body)[0]
                    raise OSError(number, os.strerror(number))
                if (connection := _connection(body)) is not None:
                    yield connection


def _messages(answer: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(answer):
        size, kind, _flags, _number, _pid = _HEADER.unpack_from(answer, at)
        if size < _HEADER.size:
            return
        yield kind, answer[at + _HEADER.size : at + size]
        at += (size + 3) & ~3


def _connection(body: bytes) -> _Connection | None:
    """Return what one message tells; `None` where it lacks what is counted, as on an older kernel."""
    if len(body) < _MESSAGE.size:
        return None
    family, _state, _timer, _retrans, _sport, _dport, _source, target, *_rest, inode = _MESSAGE.unpack_from(body)
    at = _MESSAGE.size
    while at + _ATTRIBUTE.size <= len(body):
        size, kind = _ATTRIBUTE.unpack_from(body, at)
        if size < _ATTRIBUTE.size:
            return None
        info = body[at + _ATTRIBUTE.size : at + size]
        if kind == _INFO and len(info) >= _TIMES_US.size:
            (sent,), (busy, not_taken) = _BYTES_ACKED.unpack_from(info), _TIMES_US.unpack_from(info)
            return _Connection(_address(family, target), inode, sent, max(0, busy - not_taken))
        at += (size + 3) & ~3
    return None


def _address(family: int, packed: bytes) -> str:
    if family == socket.AF_INET:
        return socket.inet_ntop(family, packed[:4])
    address = ipaddress.IPv6Address(packed)
    return str(address.ipv4_mapped or address)
