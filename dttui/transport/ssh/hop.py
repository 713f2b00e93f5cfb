"""One server on the way to an environment, and the files in which its host key is looked up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dttui import locations
from dttui.errors import HostUnreachableError
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.transport.ssh.ssh_config import HostQuery, SshConfig, SshTarget, split_hop

MAX_HOPS = 8


@dataclass(frozen=True)
class Hop:
    """One server on the way to an environment, the last one being the environment itself."""

    environment: Environment
    target: SshTarget
    jump: bool = False

    @property
    def title(self) -> str:
        """What a person knows it by."""
        return self.target.name if self.jump else self.environment.name

    @property
    def writable_file(self) -> Path:
        """Where a confirmed key goes: never a file of the user's own."""
        named = self.environment.known_hosts
        return Path(named).expanduser() if named and not self.jump else locations.known_hosts_file()

    @property
    def files(self) -> tuple[Path, ...]:
        """Where its key is looked up. The inventory's file stands instead of the others, except for a jump host."""
        named = self.environment.known_hosts
        usual = (*self.target.known_hosts_files, locations.known_hosts_file())
        if not named:
            return usual
        return (Path(named).expanduser(), *usual) if self.jump else (Path(named).expanduser(),)


def route_to(environment: Environment, config: SshConfig) -> list[Hop]:
    """Return the servers to pass, the environment's own last. Blocking.

    Raises:
        HostUnreachableError: the configuration cannot be read, or jump hosts name each other.
    """
    query = HostQuery(
        environment.host or "",
        environment.user,
        environment.port,
        environment.proxy_jump,
        environment.identity_file,
    )
    target = config.resolve(query)
    route = [Hop(environment, target)]
    ahead = list(target.proxy_jump)
    while ahead:
        jump = config.resolve(split_hop(ahead.pop()))
        route.insert(0, Hop(environment, jump, jump=True))
        # Only the first jump host's own configuration counts: the others are reached as the list says.
        ahead = ahead or list(jump.proxy_jump)
        if len(route) > MAX_HOPS:
            names = " → ".join(hop.target.name for hop in route[-4:])
            message = _("more than {count} jump hosts on the way to {host} (… {names})")
            raise HostUnreachableError(
                environment.name,
                message.format(count=MAX_HOPS, host=environment.name, names=names),
                _("Two hosts name each other as ProxyJump; `ssh -G` shows what each one says."),
            )
    return route
