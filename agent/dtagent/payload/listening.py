"""Sockets on the training address alone, for stores that would else listen on all addresses. Standard library only."""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
from typing import Any


def on_address(address: str, port: int) -> socket.socket | None:
    """Return a socket that is bound to one address; `None`, and say so, where all are to be listened on.

    That is where it is none of this host's, and where it is a name that stands here for several or for loopback: others
    may know another one by it.

    Args:
        address: by which the other hosts reach this one.
        port: 0 for any that is free.

    Raises:
        OSError: the port is taken.
    """
    try:
        family, place = _place_of(address.strip("[]") if address != "localhost" else "127.0.0.1", port)
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(place)
        except OSError as error:
            bound.close()
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            raise _UnclearError("is no address of this host, as behind a router that translates addresses") from error
    except _UnclearError as why:
        sys.stderr.write(f"dttui: {address} {why}: listening on all addresses\n")
        return None
    return bound


class _UnclearError(Exception):
    """Says why it is not known where to listen."""


def _place_of(plain: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    try:
        found = {(item[0], item[4][0]): item[4] for item in socket.getaddrinfo(plain, port, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise _UnclearError(f"cannot be resolved here ({error.strerror})") from error
    if not _is_ip(plain) and any(_is_loopback(name) for _family, name in found):
        raise _UnclearError("is a name that stands for loopback here")
    if len(found) > 1:
        raise _UnclearError("is a name that stands for several addresses")
    ((family, _name), place), *_ = found.items()
    return family, place


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_loopback(text: object) -> bool:
    return ipaddress.ip_address(str(text).partition("%")[0]).is_loopback
