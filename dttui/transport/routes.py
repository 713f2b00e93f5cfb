"""Picks the transport that an environment is reached by. paramiko is imported when the first SSH connection is made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, cast

from dttui.errors import HostUnreachableError, UsageError, is_short_of_threads
from dttui.i18n import _
from dttui.inventory.models import Environment, Reach
from dttui.transport.base import Connection, Prompter, Transport
from dttui.transport.exec import ExecTransport
from dttui.transport.local import LocalTransport
from dttui.words import more_threads, short_of_threads

if TYPE_CHECKING:
    from dttui.transport.ssh.known_hosts import HostKey
    from dttui.transport.ssh.transport import SshTransport


def prepare_ssh() -> None:
    """Do what the first SSH connection would wait for: its imports."""
    import dttui.transport.ssh.transport  # noqa: F401 - this is the import


def _over_ssh() -> Transport:
    from dttui.transport.ssh.transport import SshTransport  # Start-up: paramiko alone takes 130 ms.

    return SshTransport()


TRANSPORTS: Mapping[Reach, Callable[[], Transport]] = {
    Reach.SSH: _over_ssh,
    Reach.EXEC: lambda: ExecTransport(),
    Reach.LOCAL: lambda: LocalTransport(),
}
"""What makes the transport for each way to reach a host."""


@contextlib.contextmanager
def _telling_of_threads(environment: Environment) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_short_of_threads(error):
            raise
        raise HostUnreachableError(environment.name, short_of_threads(), more_threads()) from error


class Transports:
    """A transport for every environment, made when the first is reached that way."""

    def __init__(self) -> None:
        self._made: dict[Reach, Transport] = {}

    @property
    def warnings(self) -> list[str]:
        """Lines of known_hosts files read so far that could not be used."""
        return self._ssh.warnings if Reach.SSH in self._made else []

    def choose(self, environment: Environment) -> Transport:
        """Return what reaches the environment."""
        return self._of(environment.reach)

    async def connect(self, environment: Environment, prompter: Prompter, timeout_s: float) -> Connection:
        """Connect and authenticate; see `Transport.connect`."""
        with _telling_of_threads(environment):
            return await self.choose(environment).connect(environment, prompter, timeout_s)

    async def fetch_host_key(self, environment: Environment, timeout_s: float) -> HostKey:
        """Return the key a host shows, without logging in.

        Raises:
            UsageError: The environment is not reached by SSH.
            HostError: It cannot be reached.
        """
        self._require_ssh(environment)
        with _telling_of_threads(environment):
            return await self._ssh.fetch_host_key(environment, timeout_s)

    async def user_on(self, environment: Environment) -> str:
        """Return whom the host would be asked to let in. Raises UsageError or HostError."""
        self._require_ssh(environment)
        with _telling_of_threads(environment):
            return await self._ssh.user_on(environment)

    async def vouched_for(self, environment: Environment, key: HostKey) -> bool:
        """Whether a key is known as the environment's. Raises UsageError, or HostKeyError where it is wrong."""
        self._require_ssh(environment)
        with _telling_of_threads(environment):
            return await self._ssh.vouched_for(environment, key)

    async def trust(self, environment: Environment, key: HostKey) -> None:
        """Enter a key as the environment's. Raises UsageError or HostError."""
        self._require_ssh(environment)
        with _telling_of_threads(environment):
            await self._ssh.trust(environment, key)

    async def close(self) -> None:
        """Close all transports, and so all SSH connections and their threads."""
        while self._made:
            _reach, transport = self._made.popitem()
            await transport.close()

    def _of(self, reach: Reach) -> Transport:
        if reach not in self._made:
            self._made[reach] = TRANSPORTS[reach]()
        return self._made[reach]

    @property
    def _ssh(self) -> SshTransport:
        return cast("SshTransport", self._of(Reach.SSH))

    def _require_ssh(self, environment: Environment) -> None:
        if (message := _without_host_key(environment.reach)) is not None:
            raise UsageError(message.format(name=environment.name))


def _without_host_key(reach: Reach) -> str | None:
    match reach:
        case Reach.SSH:
            return None
        case Reach.LOCAL:
            return _("{name} is this machine: it has no SSH host key")
        case Reach.EXEC:
            return _("{name} is reached by a command, `exec`, and not by SSH: it has no SSH host key")
