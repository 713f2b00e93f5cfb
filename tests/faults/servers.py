"""What may happen to the sshd of an isolated host: it freezes, is told to take less, or has another key."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from tests.lab.host import Host
from tests.waiting import wait_until

DEADLINE_S = 60.0
_CONFIG = "/etc/ssh/sshd_config"
_KEY = "/etc/ssh/ssh_host_ed25519_key"


@contextlib.contextmanager
def frozen(host: Host) -> Iterator[float]:
    """Stop every sshd of a host by SIGSTOP while the block lasts; yield since when."""
    pids = [str(process.pid) for process in host.processes() if process.cmdline.startswith("sshd:")]
    assert pids
    began = time.time()
    try:
        host.run(["kill", "-STOP", *pids])
        yield began
    finally:
        host.run(["kill", "-CONT", *pids], check=False)


@contextlib.contextmanager
def one_session_a_connection(host: Host) -> Iterator[None]:
    """Have a host's sshd take one session a connection while the block lasts."""
    before = host.run(["cat", _CONFIG]).stdout
    with _changed(host, _CONFIG, b"MaxSessions 1\n" + before):
        yield


@contextlib.contextmanager
def another_key(host: Host) -> Iterator[str]:
    """Have a host show a key that nobody knows while the block lasts; yield its fingerprint."""
    made = ["sh", "-c", "rm -f /tmp/key*; ssh-keygen -q -t ed25519 -N '' -C new -f /tmp/key; cat /tmp/key"]
    key = host.run(made).stdout
    fingerprint = host.run(["ssh-keygen", "-l", "-f", "/tmp/key"]).stdout.decode().split()[1]
    with _changed(host, _KEY, key):
        yield fingerprint


@contextlib.contextmanager
def _changed(host: Host, path: str, content: bytes) -> Iterator[None]:
    """Give a host's sshd another file while the block lasts."""
    before = host.run(["cat", path]).stdout
    try:
        _reload(host, path, content)
        yield
    finally:
        _reload(host, path, before)


def _reload(host: Host, path: str, content: bytes) -> None:
    """Have sshd read a file; it listens again where the log says so once more."""
    listening = ["grep", "-c", "Server listening on 0.0.0.0", "/var/log/sshd.log"]
    before = host.run(listening).stdout
    host.run(["tee", path], input=content)
    listener = next(item.pid for item in host.processes() if item.cmdline.startswith(("/usr/sbin/sshd", "sshd: /usr")))
    host.run(["kill", "-HUP", str(listener)])
    wait_until(lambda: host.run(listening).stdout != before, "sshd to listen again", DEADLINE_S)
