"""Runs the machine's own tools (ip, nsenter, ssh-keygen) and says what went wrong. Knows nothing of hosts."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "LANG": "C.UTF-8",
    "LIGHT_IMPORTS": "1",
}
"""What every process of the lab starts with: nothing of the environment of the tests leaks into a host."""


class LabError(Exception):
    """The lab could not do what it was asked to."""


def call(argv: Sequence[str], stdin: str = "", pass_fds: Sequence[int] = ()) -> str:
    """Run a tool and return its stdout; `LabError` with its stderr when it fails."""
    done = subprocess.run(
        argv, input=stdin, capture_output=True, text=True, env=ENVIRONMENT, timeout=120, check=False, pass_fds=pass_fds
    )
    if done.returncode != 0:
        raise LabError(f"{shlex.join(argv)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def in_network_of(pid: int) -> list[str]:
    """The beginning of a command that runs in the network namespace of a process."""
    return ["nsenter", f"--net=/proc/{pid}/ns/net", "--"]


def ip_batch(*commands: str, network_of: int | None = None, pass_fds: Sequence[int] = ()) -> None:
    """Run several `ip` commands in one process, here or in the network namespace of the process `network_of`."""
    prefix = in_network_of(network_of) if network_of is not None else []
    call([*prefix, "ip", "-batch", "-"], stdin="\n".join(commands) + "\n", pass_fds=pass_fds)


def ip_if_there(command: str, network_of: int | None = None) -> None:
    """Run an `ip` command on an interface that may have gone with its host, also between look-up and command."""
    try:
        ip_batch(command, network_of=network_of)
    except LabError as error:
        if not any(answer in str(error) for answer in ("Cannot find device", "No such device")):
            raise
