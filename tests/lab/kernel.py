"""System calls that Python 3.10 has no name for: mounts and namespaces. Each OSError says what was tried."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 0x2

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWNET = 0x4000_0000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)


def _check(result: int, attempt: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{attempt}: {os.strerror(number)}")


def mount(source: str, target: str | Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount `source`, of file system `kind`, on `target`."""
    result = _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode(), flags, os.fsencode(options))
    _check(result, f"mount {kind or 'bind'} {source} on {target}")


def bind_read_only(source: str | Path, target: str | Path) -> None:
    """Show the file or directory `source` at `target`, where nothing can change it."""
    mount(str(source), target, flags=MS_BIND)
    mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def unmount(target: str | Path) -> None:
    """Take a mount away at once; it goes when its last user does."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    _check(_libc.unshare(flags), f"unshare {flags:#x}")


def enter(namespace_fd: int) -> None:
    """Move this process into the namespace behind an open `/proc/*/ns/*`."""
    _check(_libc.setns(namespace_fd, 0), "setns")


def pivot_root(new_root: Path) -> None:
    """Make the mount `new_root` this process's root and let the old one go."""
    old_root = new_root / "run/old-root"
    old_root.mkdir()
    _check(_libc.pivot_root(os.fsencode(new_root), os.fsencode(old_root)), f"pivot_root {new_root}")
    os.chdir("/")
    unmount("/run/old-root")
    Path("/run/old-root").rmdir()
