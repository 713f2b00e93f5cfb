"""Picks the transport that an environment is reached by. paramiko is imported when the first SSH connection is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.transport.base import Connection, Prompter, Transport
from dttui.transport.known_hosts import HostKey
from dttui.transport.local import LocalTransport

if TYPE_CHECKING:
    from dttui.transport.ssh import SshTransport


def prepare_ssh() -> None:
    """Do what the first SSH connection would wait for: its imports."""
    import dttui.transport.ssh  # noqa: F401 - this is the import


class Transports:
    """A transport for every environment: local where the environment is this machine, SSH else."""

    def __init__(self) -> None:
        self._local = LocalTransport()
        self._ssh: SshTransport | None = None

    @property
    def warnings(self) -> list[str]:
        """Lines of known_hosts files read so far that could not be used."""
        return self._ssh.warnings if self._ssh is not None else []

    def choose(self, environment: Environment) -> Transport:
        """Return what reaches the environment."""
        return self._local if environment.local else self._over_ssh()

    async def connect(self, environment: Environment, prompter: Prompter, timeout_s: float) -> Connection:
        """Connect and authenticate; see `Transport.connect`."""
        return await self.choose(environment).connect(environment, prompter, timeout_s)

    async def fetch_host_key(self, environment: Environment, timeout_s: float) -> HostKey:
        """Return the key a host shows, without logging in.

        Raises:
            UsageError: The environment is this machine.
            HostError: It cannot be reached.
        """
        self._require_ssh(environment)
        return await self._over_ssh().fetch_host_key(environment, timeout_s)

    async def user_on(self, environment: Environment) -> str:
        """Return whom the host would be asked to let in. Raises UsageError or HostError."""
        self._require_ssh(environment)
        return await self._over_ssh().user_on(environment)

    async def vouched_for(self, environment: Environment, key: HostKey) -> bool:
        """Whether a key is known as the environment's. Raises UsageError, or HostKeyError where it is wrong."""
        self._require_ssh(environment)
        return await self._over_ssh().vouched_for(environment, key)

    async def trust(self, environment: Environment, key: HostKey) -> None:
        """Enter a key as the environment's. Raises UsageError or HostError."""
        self._require_ssh(environment)
        await self._over_ssh().trust(environment, key)

    async def close(self) -> None:
        """Close all SSH connections and end their threads."""
        if self._ssh is not None:
            ssh, self._ssh = self._ssh, None
            await ssh.close()

    def _over_ssh(self) -> SshTransport:
        if self._ssh is None:
            from dttui.transport.ssh import SshTransport  # Start-up: paramiko alone takes 130 ms.

            self._ssh = SshTransport()
        return self._ssh

    def _require_ssh(self, environment: Environment) -> None:
        if environment.local:
            message = _("{name} is this machine: it has no SSH host key").format(name=environment.name)
            raise UsageError(message)
