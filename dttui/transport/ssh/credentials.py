"""What a login by SSH takes, as far as that can be told without connecting: whether nobody need be there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from dttui import locations
from dttui.inventory.models import Environment, Reach
from dttui.transport.ssh.agent_keys import SshAgent
from dttui.transport.ssh.agent_socket import is_forwarded
from dttui.transport.ssh.hop import Hop, route_to
from dttui.transport.ssh.keys import KeyRing
from dttui.transport.ssh.ssh_config import SshConfig

AGENT_S = 2.0
"""How long an ssh-agent that hangs is waited for: nobody is to wait for what is only told beforehand."""


class LoginNeed(Enum):
    """What a login takes besides what lies on this disk; each is worse than those before it."""

    NOTHING = "nothing"
    """A key file without a passphrase is there, and whether the host takes it is not known; or it is not SSH's host."""
    AGENT = "agent"
    """An ssh-agent, which a restart ends."""
    FORWARDED_AGENT = "forwarded-agent"
    """One that ends with the login session."""
    PASSPHRASE = "passphrase"  # noqa: S105 - a kind, not a passphrase
    PERSON = "person"
    """There is no key at all: a password or a code."""


@dataclass(frozen=True)
class Login:
    """How one login would go."""

    need: LoginNeed
    key: Path | None = None
    """The key file that it is about."""


class Credentials:
    """Looks at keys and the ssh-agent, each once. Blocking."""

    def __init__(self) -> None:
        self._config = SshConfig(locations.ssh_config_override())
        self._ring = KeyRing()
        self._held: dict[Path | None, frozenset[bytes]] = {}

    def login_to(self, environment: Environment) -> Login:
        """Return the hardest login on the way to a host. Raises HostUnreachableError where that cannot be told."""
        if environment.reach is not Reach.SSH:
            return Login(LoginNeed.NOTHING)
        order = tuple(LoginNeed)
        return max(
            (self._login(hop) for hop in route_to(environment, self._config)), key=lambda it: order.index(it.need)
        )

    def _login(self, hop: Hop) -> Login:
        target = hop.target
        paths = (target.identity_file,) if target.identity_file is not None else target.identity_files
        files = [file for path in paths if (file := self._ring.load(path)) is not None and not file.problem]
        plain = next((file for file in files if not file.encrypted), None)
        if plain is not None:
            return Login(LoginNeed.NOTHING, plain.path)
        held = self._held_by(target.agent_socket)
        goes = target.agent_socket is not None and is_forwarded(target.agent_socket)
        of_agent = LoginNeed.FORWARDED_AGENT if goes else LoginNeed.AGENT
        for file in files:
            if file.public_blob in held:
                return Login(of_agent, file.path)
        if held and not target.identities_only and target.identity_file is None:
            return Login(of_agent)
        return Login(LoginNeed.PASSPHRASE, files[0].path) if files else Login(LoginNeed.PERSON)

    def _held_by(self, path: Path | None) -> frozenset[bytes]:
        if path not in self._held:
            agent = SshAgent(path, AGENT_S)
            offered = agent.keys()
            self._held[path] = frozenset(key.blob for key in offered)
            agent.close()
        return self._held[path]
