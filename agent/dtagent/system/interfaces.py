"""Which interface leads to an address, and which port is free: what only this host can tell."""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Collection

import psutil

from dtagent.payload import listening


def interface_toward(address: str) -> tuple[str | None, str | None]:
    """Return the interface that traffic to `address` leaves by and this host's own address on it.

    For an address of this host itself that is the interface which carries it, not the loopback that the route
    would name: other hosts come in there. `(None, None)` where the name does not resolve or there is no route.
    """
    try:
        family, _, _, _, target = socket.getaddrinfo(address, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            source = probe.getsockname()[0]
    except OSError:
        return None, None
    for interface, entries in psutil.net_if_addrs().items():
        if any(entry.address.partition("%")[0] == source for entry in entries):
            return interface, source
    return None, source


def narrow(held: socket.socket, address: str) -> socket.socket:
    """Return a socket for the port of another, which is closed: bound as a store of a job with that address will be."""
    port = held.getsockname()[1]
    held.close()
    found = listening.on_address(address, port) or reserve_port(port, port)
    if found is None:
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    return found


def reserve_port(first: int, last: int, shunned: Collection[int] = ()) -> socket.socket | None:
    """Bind a free port of the range and return its socket, not listening; `None` where every port is taken.

    Close it just before the program that will listen there starts.

    Args:
        first: of the range.
        last: of the range.
        shunned: ports that are taken only where no other is free.
    """
    ports = list(range(first, last + 1))
    random.shuffle(ports)
    for port in sorted(ports, key=lambda number: number in shunned):
        # Without SO_REUSEADDR on the probe a port in TIME_WAIT counts as taken, which is what we want.
        candidate = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
        try:
            if candidate.family == socket.AF_INET6:
                candidate.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            candidate.bind(("", port))
        except OSError:
            candidate.close()
            continue
        return candidate
    return None
