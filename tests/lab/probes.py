"""What tests look at hosts with: ssh as a person uses it, and a connection from one host to another."""

from __future__ import annotations

import subprocess

from tests.lab.host import Host
from tests.lab.hosts import Lab

SYSTEM_PYTHON = "/usr/bin/python3"
"""The distribution's Python, on every host."""

_CONNECT = """\
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])).close()
    print("connected")
except OSError as error:
    print(type(error).__name__, error.errno)
"""


def ssh(lab: Lab, host: Host, *command: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Log in to a host as a person does, knowing its key beforehand."""
    settings = [f"UserKnownHostsFile={lab.known_hosts}", "StrictHostKeyChecking=yes", "BatchMode=yes"]
    settings += ["ConnectTimeout=20", "IdentitiesOnly=yes"]
    flags = [word for setting in settings for word in ("-o", setting)]
    return subprocess.run(
        ["ssh", "-F", "none", "-i", str(lab.client_key), *flags, *options, f"root@{host.address}", *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def connect_from(host: Host, address: str, port: int, timeout_s: float = 20.0) -> str:
    """Try to connect to a TCP port from a host; return `connected`, or the error's class and number."""
    return host.run([SYSTEM_PYTHON, "-c", _CONNECT, address, str(port), str(timeout_s)]).stdout.decode().strip()
