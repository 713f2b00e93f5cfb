"""Makes the byte pipe that SSH runs over: a TCP connection with the right options, or a ProxyCommand's. No SSH here."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

from dttui.errors import HostUnreachableError
from dttui.i18n import _
from dttui.sanitize import clean
from dttui.transport.ssh.link_socket import LinkSocket
from dttui.transport.ssh.ssh_config import SshTarget
from dttui.variables import for_a_process

NEXT_ADDRESS_AFTER_S = 0.25
"""How long an address has a head start before the next is tried beside it (RFC 8305)."""

END_GRACE_S = 2.0
"""How long a ProxyCommand has to end after SIGTERM, and again after SIGKILL."""

Address = tuple[socket.AddressFamily, tuple[Any, ...]]


async def connect(name: str, target: SshTarget, addresses: Sequence[Address]) -> LinkSocket:
    """Connect to the first of the target's addresses that answers; `name` is what a person knows it by.

    Raises:
        HostUnreachableError: all refuse.
    """
    failures: list[tuple[str, OSError]] = []
    attempts: dict[asyncio.Task[LinkSocket], str] = {}
    waiting = list(addresses)
    try:
        while waiting or attempts:
            if waiting:
                family, address = waiting.pop(0)
                attempts[asyncio.create_task(_dial(family, address))] = str(address[0])
            done, _pending = await asyncio.wait(
                attempts, timeout=NEXT_ADDRESS_AFTER_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for attempt in done:
                error = attempt.exception()
                if error is None:
                    attempts.pop(attempt)
                    return attempt.result()
                if not isinstance(error, OSError):
                    raise error
                failures.append((attempts.pop(attempt), error))
    finally:
        await _abandon(list(attempts))
    raise _refused(name, target, failures)


class ProxyCommand:
    """The configuration's ProxyCommand, and our end of its stdin and stdout.

    That is a real socket, so that a command that dies is an end of file and not a busy loop.
    """

    def __init__(self, target: SshTarget) -> None:
        """Start it. Raises HostUnreachableError where that fails."""
        self.socket, theirs = socket.socketpair()
        opened = contextlib.ExitStack()
        try:
            self._stderr = opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed by `end`
            # The person's own configuration, which ssh too hands to a shell.
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {target.proxy_command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._stderr,
                env=for_a_process(),
                start_new_session=True,
            )
        except OSError as error:
            self.socket.close()
            opened.close()
            message = _("the ProxyCommand of {host} cannot be started: {error}").format(host=target.name, error=error)
            raise HostUnreachableError(target.name, message) from error
        finally:
            theirs.close()

    def complaint(self) -> str:
        """Return the last line it wrote to stderr."""
        size = os.fstat(self._stderr.fileno()).st_size
        tail = os.pread(self._stderr.fileno(), 4096, max(0, size - 4096))
        lines = clean(tail.decode("utf-8", "replace")).split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def end(self) -> None:
        """Blocking. End it and its process group, but for what waits in the kernel, or is another user's by sudo."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                with contextlib.suppress(PermissionError):
                    os.killpg(self._process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=END_GRACE_S)
        self._stderr.close()


def resolve_address(hostname: str) -> str:
    """Return an IP address of a host as this machine knows it, or the name itself where it does not."""
    try:
        found = socket.getaddrinfo(hostname, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return hostname
    return str(found[0][4][0]).partition("%")[0]


def written_address(target: SshTarget) -> Address | None:
    """Return the address of a target that is named by one, which needs no look-up; `None` for a name."""
    try:
        address = ipaddress.ip_address(target.hostname)
    except ValueError:
        return None
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    if target.family not in (socket.AF_UNSPEC, family) or (family == socket.AF_INET6 and "%" in target.hostname):
        return None
    port = (target.port,) if family == socket.AF_INET else (target.port, 0, 0)
    return family, (target.hostname, *port)


def look_up(target: SshTarget) -> list[Address]:
    """Blocking. Return its addresses; the families take turns, so that a broken IPv6 costs a moment only.

    Raises:
        HostUnreachableError: The name does not resolve.
    """
    try:
        found = socket.getaddrinfo(target.hostname, target.port, target.family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise HostUnreachableError(
            target.name,
            _("no host named {hostname}: {error}").format(
                hostname=target.hostname, error=getattr(error, "strerror", None) or error
            ),
            _("Correct `host` in the inventory, or add the alias to ~/.ssh/config."),
        ) from error
    addresses = list(dict.fromkeys((family, address) for family, _type, _proto, _name, address in found))
    first = [item for item in addresses if item[0] == addresses[0][0]]
    second = [item for item in addresses if item[0] != addresses[0][0]]
    ordered: list[Address] = []
    while first or second:
        ordered += [batch.pop(0) for batch in (first, second) if batch]
    return ordered


async def _dial(family: socket.AddressFamily, address: tuple[Any, ...]) -> LinkSocket:
    sock = LinkSocket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        # Without the interface suffix the event loop knows the address for one and asks no name server.
        await asyncio.get_running_loop().sock_connect(sock, (str(address[0]).partition("%")[0], *address[1:]))
        sock.setblocking(True)
        sock.prepare()
    except BaseException:
        sock.close()
        raise
    return sock


async def _abandon(attempts: Sequence[asyncio.Task[LinkSocket]]) -> None:
    for attempt in attempts:
        attempt.cancel()
    for outcome in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(outcome, socket.socket):
            outcome.close()


def _refused(name: str, target: SshTarget, failures: Sequence[tuple[str, OSError]]) -> HostUnreachableError:
    place = f"[{target.hostname}]" if ":" in target.hostname else target.hostname
    place += f":{target.port}"
    tried = [address for address, _error in failures]
    if all(isinstance(error, ConnectionRefusedError) for _address, error in failures):
        if tried != [target.hostname]:
            place += f" = {', '.join(tried)}"
        return HostUnreachableError(
            target.name,
            _("{host} ({address}) refused the connection").format(host=name, address=place),
            _("The host is up, but no SSH server listens there: check `port` in the inventory, or start sshd."),
        )
    reasons = [f"{address}: {os.strerror(error.errno) if error.errno else error}" for address, error in failures]
    return HostUnreachableError(
        target.name,
        _("{host} ({address}) cannot be reached: {tried}").format(host=name, address=place, tried=", ".join(reasons)),
        _("Check that the host is up, and that this machine has a route to it."),
    )
