"""A login node after its restart, to run dttui on: another boot id, clocks that began anew, /run and /tmp emptied."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from tests.lab.kernel import CLONE_NEWNS, MS_BIND, MS_PRIVATE, MS_REC, mount, unshare

UPTIME_S = 30
"""How long ago it came up."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def start_after_restart(disks: Sequence[Path], *arguments: str | Path) -> subprocess.Popen[str]:
    """Start dttui on the machine as it is after a restart; of what is below /tmp only `disks` are still there."""
    ago = f"-{int(time.clock_gettime(time.CLOCK_BOOTTIME)) - UPTIME_S}"
    clocks = ["unshare", "--time", f"--monotonic={ago}", f"--boottime={ago}", "--fork", "--kill-child"]
    boot = [sys.executable, "-m", "tests.faults.login_node", *map(str, disks), "--"]
    return subprocess.Popen(
        [*clocks, *boot, sys.executable, "-m", "dttui", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def after_restart(
    disks: Sequence[Path], *arguments: str | Path, deadline_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run dttui there to its end."""
    with start_after_restart(disks, *arguments) as process:
        try:
            output, errors = process.communicate(timeout=deadline_s)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def _boot(disks: Sequence[str], command: list[str]) -> None:
    unshare(CLONE_NEWNS)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    kept = {disk: os.open(disk, os.O_PATH | os.O_DIRECTORY) for disk in disks}
    for empty in ("/run", "/tmp"):
        mount("tmpfs", empty, "tmpfs")
    (named := Path("/run/boot_id")).write_text(f"{uuid.uuid4()}\n")
    mount(str(named), BOOT_ID, flags=MS_BIND)
    for disk, descriptor in kept.items():
        Path(disk).mkdir(parents=True)
        mount(f"/proc/self/fd/{descriptor}", disk, flags=MS_BIND)
        os.close(descriptor)
    os.execvp(command[0], command)


if __name__ == "__main__":
    split = sys.argv.index("--")
    _boot(sys.argv[1:split], sys.argv[split + 1 :])
