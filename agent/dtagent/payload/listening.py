"""Sockets on the training address alone, for stores that would else listen on all addresses. Standard library only."""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys

BACKLOG = 4096


def on_address(address: str, port: int) -> socket.socket | None:
    """Return a socket that is bound to one address; `None`, and say so, where all are to be listened on.

    That is where it is none of this host's, and where it is a name: others may know another address by it.

    Args:
        address: by which the other hosts reach this one.
        port: 0 for any that is free.

    Raises:
        OSError: the port is taken.
    """
    plain = address.strip("[]") if address != "localhost" else "127.0.0.1"
    try:
        version = ipaddress.ip_address(plain).version
    except ValueError:
        _say(address, "is a name, which may stand for another address elsewhere")
        return None
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(socket.getaddrinfo(plain, port, family, socket.SOCK_STREAM)[0][4])
    except OSError as error:
        found.close()
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        _say(address, "is no address of this host, as behind a router that translates addresses")
        return None
    return found


def _say(address: str, why: str) -> None:
    sys.stderr.write(f"dttui: {address} {why}: listening on all addresses\n")
