"""The program that holds a lab: PID 1 of the namespaces that all its hosts live in. When the owner goes, so does it.

It keeps the switch's network namespace and the disks' mounts, and boots hosts when asked. It ends at the end of file
of its control socket, however the owner died; the kernel then kills every host, and takes every mount and link away.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from tests.lab import kernel
from tests.lab.blueprint import Blueprint
from tests.lab.commands import ENVIRONMENT

MESSAGE_BYTES = 1 << 18
"""Room for the largest message on the control socket."""


def main() -> None:
    """Serve the control socket, whose descriptor is the first argument, until its other end is closed."""
    control = socket.socket(fileno=int(sys.argv[1]))
    directory = Path(sys.argv[2])
    disks = directory / "disks"
    disks.mkdir()
    kernel.mount("tmpfs", disks, "tmpfs", options="mode=700,size=1m")
    control.send(json.dumps({"boot_id": "", "failure": None}).encode())
    boots: dict[str, subprocess.Popen[bytes]] = {}
    while request := control.recv(MESSAGE_BYTES):
        blueprint = Blueprint.from_json(request.decode())
        try:
            previous = boots.get(blueprint.name)
            if previous is not None:
                previous.kill()
                previous.wait(timeout=10)
            boots[blueprint.name] = _boot(blueprint, control, sys.argv[3])
        except (OSError, subprocess.TimeoutExpired) as error:
            control.send(json.dumps({"boot_id": blueprint.boot_id, "failure": str(error)}).encode())
    kernel.unmount(disks)
    shutil.rmtree(directory, ignore_errors=True)


def _boot(blueprint: Blueprint, control: socket.socket, disk_size: str) -> subprocess.Popen[bytes]:
    disk = Path(blueprint.disk)
    if not disk.exists():
        disk.mkdir()
        kernel.mount("tmpfs", disk, "tmpfs", options=f"mode=755,size={disk_size}")
    document = disk / "blueprint.json"
    document.write_text(blueprint.to_json())
    fd = control.fileno()
    program = [sys.executable, "-S", "-B", "-m", "tests.lab.inside_host", blueprint.name, str(document), str(fd)]
    return subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "--", *program],
        stdin=subprocess.DEVNULL,
        env=ENVIRONMENT,
        pass_fds=[fd],
        start_new_session=True,
    )


if __name__ == "__main__":
    main()
