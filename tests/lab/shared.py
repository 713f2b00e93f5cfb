"""A directory that several hosts see, as by a network file system: one file system, mounted on each of them.

It goes with the last of them that is switched off, and one that was has to be given it again.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.lab.host import Host
from tests.lab.kernel import enter

SHARED = "/srv/shared"
_OPEN_TREE, _MOVE_MOUNT = 428, 429
"""System calls of Linux 5.2, by the number that they have on all machines."""
_HERE = -100
_CLONE, _CLOEXEC, _EMPTY_PATH = 0x1, 0x80000, 0x4


def share(hosts: Sequence[Host], size: str = "8g") -> Path:
    """Make a directory of some room on the first host, and show it on the others; return where it is seen here."""
    first = hosts[0]
    first.run(["mkdir", "-p", SHARED])
    first.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "shared", SHARED])
    for other in hosts[1:]:
        show(first, other)
    return seen_here(first)


def show(first: Host, other: Host) -> None:
    """Show what one host has there on another that has nothing there yet."""
    other.run(["mkdir", "-p", SHARED])
    subprocess.run([sys.executable, "-m", "tests.lab.shared", str(first.pid), str(other.pid)], check=True, timeout=120)


@contextlib.contextmanager
def shared_by(hosts: Sequence[Host]) -> Iterator[Path]:
    """Have hosts see one directory for a while, as far as they are there at its end."""
    try:
        yield share(hosts)
    finally:
        for host in hosts:
            with contextlib.suppress(AssertionError):
                unshare_from(host)


def unshare_from(host: Host) -> None:
    """Take it from a host, whoever uses it there."""
    host.run(["umount", "--lazy", SHARED], check=False)


def seen_here(host: Host) -> Path:
    """Return the path at which this machine sees what a host has there."""
    return Path(f"/proc/{host.pid}/root{SHARED}")


def _clone(source: int, target: int) -> None:
    """Mount in one namespace what another has; by a process of its own, as a thread cannot enter them."""
    library = ctypes.CDLL(None, use_errno=True)
    enter(source)
    tree = library.syscall(_OPEN_TREE, _HERE, SHARED.encode(), _CLONE | _CLOEXEC)
    if tree < 0:
        raise OSError(ctypes.get_errno(), "open_tree")
    enter(target)
    if library.syscall(_MOVE_MOUNT, tree, b"", _HERE, SHARED.encode(), _EMPTY_PATH) != 0:
        raise OSError(ctypes.get_errno(), "move_mount")


if __name__ == "__main__":
    _clone(*(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC) for pid in sys.argv[1:3]))
