"""A real OpenSSH server for tests: run by whoever runs them, on a free port of 127.0.0.1, with keys of its own."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dttui.inventory.models import Environment
from tests.ports import free_port as free_port
from tests.waiting import PATIENCE_S

BINARY = Path("/usr/sbin/sshd")
USER = pwd.getpwuid(os.getuid()).pw_name
START_TIMEOUT_S = 60.0


def require_sshd() -> None:
    """Skip where there is no sshd, unless the environment says that there must be one."""
    if BINARY.exists():
        return
    reason = f"{BINARY} is missing: install openssh-server"
    if os.environ.get("DTTUI_REQUIRE_LAB") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "", comment: str = "test") -> Path:
    """Make a key pair at `path` and `path.pub`."""
    run("ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", comment, "-f", str(path))
    return path


def run(*command: str, env: Mapping[str, str] | None = None) -> str:
    """Run a tool and return what it prints; its own words when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120, env=env)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def fingerprint(public_key: Path) -> str:
    """`SHA256:…` as ssh-keygen prints it."""
    return run("ssh-keygen", "-l", "-f", str(public_key)).split()[1]


@dataclass
class Sshd:
    """One server: its files, and how to reach it."""

    directory: Path
    options: Mapping[str, str] = field(default_factory=dict)
    host_key_kinds: tuple[str, ...] = ("ed25519",)
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return (self.directory / "log").read_bytes().decode(errors="replace").replace("\r\n", "\n")

    @property
    def client_key(self) -> Path:
        """A private key that it accepts."""
        return self.directory / "client"

    @property
    def known_hosts(self) -> Path:
        """A file that lists its host keys."""
        return self.directory / "known_hosts"

    def host_key(self, kind: str = "ed25519") -> Path:
        """The public half of one of its keys."""
        return self.directory / f"host_{kind}.pub"

    def environment(self, name: str = "gpu1", **fields: object) -> Environment:
        """An environment that leads here, with everything known and allowed unless told otherwise."""
        usual: dict[str, object] = {
            "name": name,
            "host": "127.0.0.1",
            "port": self.port,
            "user": USER,
            "identity_file": str(self.client_key),
            "known_hosts": str(self.known_hosts),
        }
        return Environment.model_validate({**usual, **fields})

    def authorize(self, public_key: Path) -> None:
        """Let one more key in."""
        with (self.directory / "authorized_keys").open("a") as file:
            file.write(public_key.read_text())

    def sessions(self) -> list[int]:
        """Process ids that serve connections: one each, or two where the server separates privileges."""
        assert self.process is not None
        found = _children(self.process.pid)
        for pid in found:
            found += [child for child in _children(pid) if _name(child).startswith("sshd")]
        return found

    def start(self) -> None:
        """Make what is missing, and return once it listens."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for kind in self.host_key_kinds:
            if not self.host_key(kind).exists():
                make_key(self.host_key(kind).with_suffix(""), kind)
        if not self.client_key.exists():
            make_key(self.client_key)
            self.authorize(self.client_key.with_suffix(".pub"))
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        for _attempt in range(3):  # Between finding a free port and listening someone else may take it.
            self.port = self.port or free_port()
            if self._listens():
                break
            self.port = 0
        else:
            pytest.fail(f"sshd did not start:\n{self.log}")
        names = f"[127.0.0.1]:{self.port}"
        keys = [self.host_key(kind).read_text().split()[:2] for kind in self.host_key_kinds]
        self.known_hosts.write_text("".join(f"{names} {kind} {blob}\n" for kind, blob in keys))

    def stop(self) -> None:
        """End it and its sessions."""
        if self.process is None:
            return
        sessions = self.sessions()
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        for pid in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
        self.process = None

    def _listens(self) -> bool:
        config = self.directory / "sshd_config"
        config.write_text("".join(f"{key} {value}\n" for key, value in self._configuration()))
        with (self.directory / "log").open("ab") as log:
            before = log.tell()
            self.process = subprocess.Popen(
                [str(BINARY), "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        ready = f"Server listening on 127.0.0.1 port {self.port}.".encode()
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if ready in (self.directory / "log").read_bytes()[before:]:
                return True
            try:
                self.process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
            break
        self.process.kill()
        self.process.wait()
        self.process = None
        return False

    def _configuration(self) -> Iterator[tuple[str, str]]:
        yield from self.options.items()  # First, because the first value counts.
        for kind in self.host_key_kinds:
            yield "HostKey", str(self.host_key(kind).with_suffix(""))
        yield "Port", str(self.port)
        yield "ListenAddress", "127.0.0.1"
        yield "AuthorizedKeysFile", str(self.directory / "authorized_keys")
        yield "PidFile", "none"
        yield "UsePAM", "no"
        yield "StrictModes", "no"
        yield "PasswordAuthentication", "no"
        yield "KbdInteractiveAuthentication", "no"
        yield "PermitRootLogin", "prohibit-password"
        yield "MaxStartups", "1000"
        yield "LogLevel", "VERBOSE"


@contextlib.contextmanager
def running_sshd(
    directory: Path, options: Mapping[str, str] | None = None, host_key_kinds: tuple[str, ...] = ("ed25519",)
) -> Iterator[Sshd]:
    """Run a server while the block lasts."""
    require_sshd()
    server = Sshd(directory, options or {}, host_key_kinds)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # It is gone, or goes while this reads.
        return []


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
