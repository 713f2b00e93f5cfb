"""One isolated host as a test sees it: run things there, switch it off and on, break its link."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import shlex
import signal
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.lab.blueprint import Blueprint
from tests.lab.commands import ENVIRONMENT, LabError
from tests.lab.keys import KeyPair
from tests.lab.network import Network
from tests.lab.rack import Rack


class HostProcess(NamedTuple):
    """A process on a host."""

    pid: int
    """Its pid there."""
    cmdline: str
    """Its arguments, joined by spaces; empty for one that has ended and was not reaped yet."""


class HostCommandError(LabError):
    """A command on a host ended with a status other than 0."""


class Host:
    """One isolated host, running unless `kill` has switched it off."""

    ssh_port = 22
    """Port of its sshd."""

    def __init__(self, blueprint: Blueprint, key: KeyPair, network: Network, rack: Rack) -> None:
        self.name = blueprint.name
        self.address = blueprint.cable.address.partition("/")[0]
        self.host_key = key.public_line
        self.fingerprint = key.fingerprint
        self._blueprint = blueprint
        self._network = network
        self._rack = rack
        self._pid = 0
        self._pidfd: int | None = None
        self._cut = False
        self._limited = False
        self._has_slow_link = False
        self._dropped_ports: set[int] = set()

    @property
    def boot_id(self) -> str:
        """Identity of this boot, as `/proc/sys/kernel/random/boot_id` says there."""
        return self._blueprint.boot_id

    @property
    def alive(self) -> bool:
        """Whether it is switched on."""
        return self._pidfd is not None and not select.select([self._pidfd], [], [], 0)[0]

    @property
    def pid(self) -> int:
        """Pid of its PID 1 as this machine sees it; `LabError` when it is switched off."""
        self._require_power()
        return self._pid

    def run(
        self, argv: Sequence[str], input: bytes = b"", timeout: float = 30.0, check: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command there as root, past sshd, in `/`.

        Raises:
            HostCommandError: It failed, and `check` is true.
            subprocess.TimeoutExpired: It took longer than `timeout` seconds, and was killed.
        """
        namespaces = ["--mount", "--uts", "--ipc", "--net", "--pid"]
        full = ["nsenter", "--target", str(self.pid), *namespaces, "--", *argv]
        process = subprocess.Popen(
            full,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            start_new_session=True,
        )
        with process:
            try:
                stdout, stderr = process.communicate(input, timeout)
            except BaseException:
                # nsenter only waits for the command, which is in the same process group.
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if check and process.returncode != 0:
            said = (stderr or stdout).decode(errors="replace").strip()
            raise HostCommandError(f"{self.name}: {shlex.join(argv)} ended with {process.returncode}: {said}")
        return subprocess.CompletedProcess(list(argv), process.returncode, stdout, stderr)

    def processes(self) -> list[HostProcess]:
        """Return every process there."""
        proc = Path(f"/proc/{self.pid}/root/proc")
        found = []
        for pid in sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()):
            with contextlib.suppress(OSError):
                arguments = (proc / str(pid) / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                found.append(HostProcess(pid, b" ".join(arguments).decode(errors="replace")))
        return found

    def kill(self) -> None:
        """Switch it off: nothing there runs on, and nobody is told. A host that is off stays off."""
        if self._pidfd is None:
            return
        self._network.pull(self._blueprint.cable)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        if not select.select([self._pidfd], [], [], 10.0)[0]:
            raise LabError(f"{self.name} cannot be killed")
        self._network.remove(self._blueprint.cable)
        self.close()

    def start(self) -> None:
        """Switch it on again: same files but for `/tmp`, `/run` and `/dev/shm`, same host key, a whole link."""
        if self._pidfd is not None:
            return
        # A boot that was interrupted may have left its cable.
        self._network.remove(self._blueprint.cable)
        self._blueprint = dataclasses.replace(self._blueprint, boot_id=str(uuid.uuid4()))
        self.booted(self._rack.boot(self._blueprint)[self.name])

    def cut(self) -> None:
        """Cut its link: packets vanish both ways, and neither side is told."""
        self._require_power()
        self._network.pull(self._blueprint.cable)
        self._cut = True

    def heal(self) -> None:
        """Mend what `cut` and `drop_port` did."""
        self._require_power()
        if self._cut:
            self._network.plug(self._blueprint.cable)
            self._cut = False
        for port in sorted(self._dropped_ports):
            self.restore_port(port)

    def drop_port(self, port: int) -> None:
        """Let what others send to one of its TCP ports vanish, and what it answers from there."""
        if port not in self._dropped_ports:
            self._network.filter_port(self.pid, port, dropped=True)
            self._dropped_ports.add(port)

    def restore_port(self, port: int) -> None:
        """Undo `drop_port`."""
        if port in self._dropped_ports:
            self._network.filter_port(self.pid, port, dropped=False)
            self._dropped_ports.remove(port)

    def limit(self, rate: str) -> None:
        """Limit its bandwidth, each way, to a rate such as `1mbit`."""
        self._network.limit(self._blueprint.cable, self.pid, rate)
        self._limited = True

    def limit_to(self, other: Host, rate: str) -> None:
        """Limit what it sends to one other host to a rate such as `10mbit`; see `Network.limit_to`."""
        self._network.limit_to(self.pid, other.address, rate)
        self._has_slow_link = True

    def unlimit(self) -> None:
        """Undo `limit` and `limit_to`."""
        if self._has_slow_link:
            self._network.unlimit_to(self.pid)
            self._has_slow_link = False
        if self._limited:
            self._network.unlimit(self._blueprint.cable, self.pid)
            self._limited = False

    def restore(self) -> None:
        """Bring it back to how it was booted, its files apart: on, with a whole link without limits."""
        if not self.alive:
            self.kill()
            self.start()
        self.heal()
        self.unlimit()

    def booted(self, pid: int) -> None:
        """Take note of the pid of a new boot's PID 1."""
        self._pid, self._pidfd = pid, os.pidfd_open(pid)
        self._cut = self._limited = self._has_slow_link = False
        self._dropped_ports.clear()

    def close(self) -> None:
        """Forget its PID 1."""
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _require_power(self) -> None:
        if not self.alive:
            raise LabError(f"{self.name} is switched off")
