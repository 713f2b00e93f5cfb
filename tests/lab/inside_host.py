"""The program that is a host's PID 1: builds the host around itself, starts sshd, and reaps orphans for ever after.

Everything it needs is imported before the root changes, because the new root may not have the machine's Python.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.lab import disk, kernel
from tests.lab.blueprint import Blueprint, Cable
from tests.lab.commands import ENVIRONMENT, LabError, ip_batch

_BOOT_DEADLINE_S = 15.0


def main() -> None:
    """Boot the host of the blueprint named by the second argument and report to the descriptor in the third."""
    control = socket.socket(fileno=int(sys.argv[3]))
    blueprint = Blueprint.from_json(Path(sys.argv[2]).read_text())
    failure = None
    try:
        _boot(blueprint)
    except (OSError, LabError) as error:
        failure = str(error)
    control.send(json.dumps({"boot_id": blueprint.boot_id, "failure": failure}).encode())
    control.close()
    if failure is None:
        _reap_for_ever()


def _boot(blueprint: Blueprint) -> None:
    _connect(blueprint.cable)
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    socket.sethostname(blueprint.name)
    kernel.pivot_root(disk.mount_root(blueprint))
    _start_sshd()


def _connect(cable: Cable) -> None:
    """Move into a network namespace of its own and lay a cable from there to the switch."""
    switch = os.open("/proc/self/ns/net", os.O_RDONLY)
    kernel.unshare(kernel.CLONE_NEWNET)
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    kernel.enter(switch)
    ip_batch(
        f"link add {cable.port} type veth peer name eth0 address {cable.mac} netns /proc/self/fd/{own}",
        f"link set {cable.port} master switch up",
        pass_fds=[own],
    )
    kernel.enter(own)
    ip_batch(
        "link set lo up",
        f"address add {cable.address} dev eth0",
        "link set eth0 up",
        *(f"neighbour add {address} lladdr {mac} nud permanent dev eth0" for address, mac in cable.neighbours),
    )
    os.close(switch)
    os.close(own)


def _start_sshd() -> None:
    Path("/run/sshd").mkdir(mode=0o755)
    log = Path("/var/log/sshd.log")
    with log.open("ab") as stderr:
        sshd = subprocess.Popen(
            ["/usr/sbin/sshd", "-D", "-e"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=ENVIRONMENT,
            start_new_session=True,
        )
    deadline = time.monotonic() + _BOOT_DEADLINE_S
    while not _listens(22):
        if sshd.poll() is not None or time.monotonic() > deadline:
            raise LabError(f"sshd did not come up: {log.read_text(errors='replace')[-500:]}")
        time.sleep(0.005)


def _listens(port: int) -> bool:
    """Whether a socket listens on a TCP port, read without touching the port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def _reap_for_ever() -> None:
    # Blocked only now: every process started so far would otherwise have inherited the mask.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        signal.sigwait({signal.SIGCHLD})


if __name__ == "__main__":
    main()
