"""Many SSH hosts on one machine: real sshd processes that share a port on addresses of 127.0.0.0/8. No root needed."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ADDRESSES_PER_SSHD = 16
"""sshd listens on no more."""
START_TIMEOUT_S = 30.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

BASE = """\
Port {port}
User {user}
IdentityFile {key}
IdentitiesOnly yes
UserKnownHostsFile {known_hosts}
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
"""
TUNED = """\
KexAlgorithms curve25519-sha256
Ciphers aes128-gcm@openssh.com
HostKeyAlgorithms ssh-ed25519
PreferredAuthentications publickey
GSSAPIAuthentication no
AddressFamily inet
CheckHostIP no
UpdateHostKeys no
CanonicalizeHostname no
ForwardAgent no
ForwardX11 no
LogLevel ERROR
"""
PERSISTENT = """\
ControlMaster auto
ControlPath {directory}/m-%C
ControlPersist 600
"""


@dataclass
class LoopbackHosts:
    """The hosts, and what a client needs to reach them."""

    directory: Path
    addresses: list[str]
    port: int
    user: str
    servers: list[subprocess.Popen[bytes]]

    @property
    def key(self) -> Path:
        return self.directory / "client"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    def ssh_config(self, name: str) -> Path:
        """Path of `stock`, `tuned` or `persistent`."""
        return self.directory / f"{name}.conf"

    def cpu_s(self) -> float:
        """CPU time of the servers and of the sessions that have ended."""
        return sum(_cpu_s(server.pid) for server in self.servers)

    def await_idle(self) -> None:
        """Return once all sessions have ended, and so are counted."""
        while any(_descendants(server.pid) for server in self.servers):
            time.sleep(0.01)


@contextlib.contextmanager
def loopback_hosts(directory: Path, count: int) -> Iterator[LoopbackHosts]:
    """Run `count` hosts while the block lasts."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if sshd is None:
        raise SystemExit("sshd is missing: apt-get install openssh-server")
    user = pwd.getpwuid(os.getuid()).pw_name
    network = f"127.{random.randint(64, 250)}"
    numbers = itertools.islice(itertools.product(range(250), range(1, 251)), count)
    addresses = [f"{network}.{third}.{fourth}" for third, fourth in numbers]
    hosts = LoopbackHosts(directory, addresses, _free_port(addresses[0]), user, [])
    for name in ("host", "client"):
        path = str(directory / name)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f", path], check=True)
    public = " ".join((directory / "host.pub").read_text().split()[:2])
    hosts.known_hosts.write_text("".join(f"[{address}]:{hosts.port} {public}\n" for address in addresses))
    base = BASE.format(port=hosts.port, user=user, key=hosts.key, known_hosts=hosts.known_hosts)
    hosts.ssh_config("stock").write_text(base)
    hosts.ssh_config("tuned").write_text(base + TUNED)
    hosts.ssh_config("persistent").write_text(base + TUNED + PERSISTENT.format(directory=directory))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    try:
        for first in range(0, count, ADDRESSES_PER_SSHD):
            hosts.servers.append(_start(sshd, hosts, first))
        _await_listening(hosts)
        yield hosts
    finally:
        _stop(hosts)


def _start(sshd: str, hosts: LoopbackHosts, first: int) -> subprocess.Popen[bytes]:
    config = hosts.directory / f"sshd-{first}.conf"
    settings = [
        f"Port {hosts.port}",
        *(f"ListenAddress {address}" for address in hosts.addresses[first : first + ADDRESSES_PER_SSHD]),
        f"HostKey {hosts.directory / 'host'}",
        f"AuthorizedKeysFile {hosts.directory / 'client.pub'}",
        f"SetEnv HOME={hosts.directory}",  # The person's shell start-up files are not what is measured.
        "Subsystem sftp internal-sftp",
        "PidFile none",
        "UsePAM no",
        "StrictModes no",
        "PermitRootLogin prohibit-password",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "MaxStartups 2000",
        "LogLevel ERROR",
    ]
    config.write_text("\n".join(settings) + "\n")
    with (hosts.directory / f"sshd-{first}.log").open("wb") as log:
        return subprocess.Popen([sshd, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stderr=log)


def _await_listening(hosts: LoopbackHosts) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    for address in hosts.addresses[::ADDRESSES_PER_SSHD]:
        while True:
            with socket.socket() as probe:
                if probe.connect_ex((address, hosts.port)) == 0:
                    break
            if time.monotonic() > deadline:
                logs = "".join(path.read_text() for path in hosts.directory.glob("sshd-*.log"))
                raise SystemExit(f"sshd does not listen on {address} port {hosts.port}:\n{logs}")
            time.sleep(0.02)


def _stop(hosts: LoopbackHosts) -> None:
    sessions = [pid for server in hosts.servers for pid in _descendants(server.pid)]
    for server in hosts.servers:
        server.terminate()
    for pid in sessions:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for server in hosts.servers:
        server.wait()


def _descendants(pid: int) -> list[int]:
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
    return children + [pid for child in children for pid in _descendants(child)]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS_PER_S


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
