"""Shared memory that a job left in /dev/shm: removed where it is surely this job's and surely nobody's any more."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
from dataclasses import dataclass
from pathlib import Path

from dtagent.system import processes, untrusted_files

DIRECTORY = Path("/dev/shm")  # noqa: S108 - nothing is made there
_OTHERS = 0o077


@dataclass(frozen=True)
class Removed:
    """An object that is gone."""

    name: str
    size_bytes: int


def private_objects(directory: Path = DIRECTORY) -> dict[str, int]:
    """Return name → inode of this user's objects that are closed to others, as `shm_open` makes them.

    What `cp` or `open` made is for others to read too: data that someone put there, not a leftover.
    """
    found = {}
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                info = entry.stat(follow_symlinks=False)
                if _is_private_object(info):
                    found[entry.name] = info.st_ino
    return found


def remove_leftovers(before: set[int], directory: Path = DIRECTORY) -> list[Removed]:
    """Remove the private objects that have come since and that no process of any user has open or mapped.

    Args:
        before: inodes of the objects that were there when the job started.
        directory: where to look.
    """
    if processes.umask() & _OTHERS == _OTHERS:
        return []  # Here every file is closed to others, so that says nothing.
    removed = []
    for name, inode in private_objects(directory).items():
        if inode not in before:
            with contextlib.suppress(OSError):
                size_bytes = _remove(directory / name, inode)
                removed.append(Removed(name, size_bytes))
    return removed


def _remove(path: Path, inode: int) -> int:
    """Remove an object that nobody uses; return its size.

    Raises:
        OSError: somebody uses it, or it is another one now.
    """
    descriptor = untrusted_files.descriptor(path)
    try:
        # The kernel gives this lease only where no other process, of whatever user, has the file open or mapped, and
        # lets nobody open it meanwhile. It tells of a try by a signal, which would be the deadly SIGIO.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        info = os.fstat(descriptor)
        if info.st_ino != inode or not _is_private_object(info):
            raise FileNotFoundError(path)
        os.unlink(path)
        return info.st_size
    finally:
        os.close(descriptor)


def _is_private_object(info: os.stat_result) -> bool:
    is_own_file = stat.S_ISREG(info.st_mode) and info.st_uid == os.getuid() and info.st_nlink == 1
    return is_own_file and not info.st_mode & _OTHERS
