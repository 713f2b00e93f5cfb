"""Isolated hosts on this machine, to deploy to, to train on and to break: `with Lab([…]) as lab: lab["gpu1"].kill()`.

Each has its own network, host name, processes, shared memory and files, and a real OpenSSH server. The login node is
this machine itself, in its ordinary network namespace.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.lab import leftovers
from tests.lab.bare import masks
from tests.lab.blueprint import Blueprint, Cable, File
from tests.lab.commands import LabError
from tests.lab.host import Host
from tests.lab.interpreter import USER_PYTHON, interpreter_trees
from tests.lab.keys import KeyPair, make_key
from tests.lab.network import Network
from tests.lab.rack import Rack

__all__ = ["Host", "Lab"]

_MAX_HOSTS = 200
_SSHD_CONFIG = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PrintMotd no
AcceptEnv LANG LC_*
SetEnv LIGHT_IMPORTS=1
Subsystem sftp internal-sftp
"""


class Lab(Mapping[str, Host]):
    """Several hosts on a network of their own, for the length of a `with` block or until `close`.

    Args:
        names: Host names.
        bare: Those that have no Python but the distribution's, no pip, no checkout and no package cache.
        user_python: A virtual environment that every host has at `/opt/train`.
        zones: Zone of a host, for the inventory.
        gpus: Number of simulated GPUs of a host, for the inventory; 1 where it is not said.
        disk_size: Room for the files of each host, as tmpfs takes it.
    """

    def __init__(
        self,
        names: Sequence[str],
        bare: Collection[str] = (),
        user_python: Path | None = None,
        zones: Mapping[str, str] | None = None,
        gpus: Mapping[str, int] | None = None,
        disk_size: str = "2g",
    ) -> None:
        unknown = {*bare, *(zones or {}), *(gpus or {})} - set(names)
        if unknown or len(set(names)) != len(names) or not 1 <= len(names) <= _MAX_HOSTS:
            raise LabError(f"hosts need different names, 1 to {_MAX_HOSTS} of them; unknown: {sorted(unknown)}")
        for name in names:
            if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", name):
                raise LabError(f"{name!r} is not a host name")
        self.names = tuple(names)
        self.bare = frozenset(bare)
        self.user_python = user_python
        self.zones = dict(zones or {})
        self.gpus = dict(gpus or {})
        self._disk_size = disk_size
        self._hosts: dict[str, Host] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Lab:
        with contextlib.ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every host and remove all that the lab has made."""
        self._stack.close()

    def _start(self, stack: contextlib.ExitStack) -> None:
        leftovers.sweep()
        self.directory = leftovers.make_directory()
        stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        rack = Rack(self.directory, self._disk_size)
        stack.callback(rack.close)
        self.rack_pid = rack.pid
        self._network = Network(rack.pid)
        stack.callback(self._network.close)
        client = make_key(self.directory / "id_ed25519")
        self.client_key = client.path
        cables = [self._network.cable(index, len(self.names)) for index in range(len(self.names))]
        self._network.introduce(cables)
        blueprints = []
        for name, cable in zip(self.names, cables, strict=True):
            key = make_key(self.directory / f"host_{name}")
            blueprints.append(self._blueprint(name, cable, key, client, rack.disks))
            self._hosts[name] = Host(blueprints[-1], key, self._network, rack)
            stack.callback(self._hosts[name].close)
        self.known_hosts = self.directory / "known_hosts"
        self.known_hosts.write_text("".join(f"{host.name},{host.address} {host.host_key}\n" for host in self.values()))
        for name, pid in rack.boot(*blueprints).items():
            self._hosts[name].booted(pid)

    def _blueprint(self, name: str, cable: Cable, key: KeyPair, client: KeyPair, disks: Path) -> Blueprint:
        bare = name in self.bare
        names = zip(self.names, range(len(self.names)), strict=True)
        machines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", f"{self.login_address} login"]
        machines += [f"{self._network.address(index)} {other}" for other, index in names]
        files = (
            File("/etc/hostname", name + "\n"),
            File("/etc/hosts", "\n".join(machines) + "\n"),
            File("/etc/machine-id", uuid.uuid4().hex + "\n"),
            File("/etc/ssh/sshd_config", _SSHD_CONFIG),
            File("/etc/ssh/ssh_host_ed25519_key", key.path.read_text(), 0o600),
            File("/etc/ssh/ssh_host_ed25519_key.pub", key.public_line + "\n"),
            File("/root/.ssh/authorized_keys", client.public_line + "\n", 0o600),
        )
        trees = interpreter_trees(self.user_python, bare=bare) if self.user_python else ()
        boot_id = str(uuid.uuid4())
        return Blueprint(name, boot_id, str(disks / name), cable, masks(bare=bare), files, trees)

    def inventory(self, path: Path, **overrides: Any) -> Path:
        """Write an inventory.yaml of the hosts to `path` and return it.

        Args:
            path: The file to write.
            **overrides: Under the name of a host, a mapping of fields for that host; under any other name, that field
                for all hosts. A field of `None` is left out.
        """
        environments = []
        for host in self.values():
            fields: dict[str, Any] = {
                "name": host.name,
                "host": host.address,
                "user": "root",
                "port": host.ssh_port,
                "identity_file": str(self.client_key),
                "known_hosts": str(self.known_hosts),
                "zone": self.zones.get(host.name),
                "python": USER_PYTHON if self.user_python else None,
                "resources": {"gpu": {"count": self.gpus.get(host.name, 1), "simulated": True}},
            }
            fields.update({key: value for key, value in overrides.items() if key not in self})
            fields.update(overrides.get(host.name, {}))
            environments.append({key: value for key, value in fields.items() if value is not None})
        path.write_text(yaml.safe_dump({"environments": environments}, sort_keys=False))
        return path

    @property
    def login_address(self) -> str:
        """Address by which the hosts reach the login node, this machine."""
        return self._network.login_address

    @property
    def interface(self) -> str:
        """The login node's interface to the hosts."""
        return self._network.interface

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)

    def restore(self) -> None:
        """Switch on every host and mend every link."""
        for host in self.values():
            host.restore()
