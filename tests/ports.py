"""Ports of this machine on which nobody listens."""

from __future__ import annotations

import contextlib
import socket


def free_ports(count: int) -> list[int]:
    """Return so many, each another one; somebody else may take one before it is used."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _index in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def free_port() -> int:
    """Return one."""
    return free_ports(1)[0]
