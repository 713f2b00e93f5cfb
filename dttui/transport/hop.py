"""One server on the way to an environment, and the files in which its host key is looked up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dttui import locations
from dttui.inventory.models import Environment
from dttui.transport.ssh_config import SshTarget


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
