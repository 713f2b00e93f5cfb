"""Ports of this machine on which nobody listens."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Iterator

_PLACES = range(10_000, 20_000)
"""Below those that the kernel gives to who asks for any: of it nobody is given one between its choice and its use."""
_next = itertools.count(os.getpid() * 101)
"""Other processes of tests begin elsewhere, and one gives no port a second time before all others."""


def free_ports(count: int) -> list[int]:
    """Return so many, each another one; somebody else may take one before it is used."""
    found: list[int] = []
    for number in itertools.islice(_next, len(_PLACES)):
        port = _PLACES[number % len(_PLACES)]
        if _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"of the ports {_PLACES.start} to {_PLACES.stop - 1} fewer than {count} are free")


def free_port() -> int:
    """Return one."""
    return free_ports(1)[0]


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """Keep a port, on which nobody listens: it is given to no other program meanwhile.

    One that reuses addresses, as most servers do, can listen there all the same.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", free_port()))
        yield int(held.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
