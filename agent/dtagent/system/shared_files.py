"""Files in a directory that all users of a host share, each of one user, open to be read and locked by him alone.

Users are safe from one another there: nobody can remove or exchange what is another's, and what somebody has put where
another's file should be is left alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dtagent.system.retry import PAUSE_S

LOG = logging.getLogger("dtagent")
TURN_S = 5.0
"""For others to look and to choose."""
MOMENT_S = 1.0
"""For others to see to the mode of the directory, or to end a look at one file."""
MOST_FILES = 9
"""Of one user for one purpose, where others have spoilt the ones before."""
MOST_BYTES = 4096
SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NOBODY_CAN = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)


class UnsafeDirectoryError(OSError):
    """What lies where the directory should be is none in which users are safe from one another."""


class LockedFile(NamedTuple):
    """A file that somebody has locked."""

    uid: int
    """Of its owner, whom the kernel vouches for."""
    text: bytes
    """What its owner has written, which may be anything."""
    written_s: float
    """Unix time."""


@contextlib.contextmanager
def opened(path: Path, *, makes: bool = True) -> Iterator[int | None]:
    """Yield a descriptor of the directory; `None` where there is none, and nobody here can make one."""
    try:
        if makes:
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o777)
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if os.path.lexists(path):
            raise UnsafeDirectoryError(error.errno, "no directory", str(path)) from error
        if error.errno not in _NOBODY_CAN:
            raise
        LOG.warning("GPUs are not locked for other users: %s", error)
        yield None
        return
    try:
        _check(directory)
        yield directory
    finally:
        os.close(directory)


def _check(directory: int) -> None:
    """See to it that nobody can remove or exchange what is another's there. Raises UnsafeDirectoryError."""
    deadline = time.monotonic() + MOMENT_S
    while True:
        info = os.fstat(directory)
        is_open = info.st_mode & 0o022
        if is_open and info.st_mode & stat.S_ISVTX:
            return
        if info.st_uid == os.geteuid():
            os.fchmod(directory, 0o1777)
        elif time.monotonic() > deadline:  # Whoever has just made it sets that next.
            why = "anybody can remove what is in it" if is_open else "only its owner can write to it"
            raise UnsafeDirectoryError(errno.EPERM, why, os.readlink(f"/proc/self/fd/{directory}"))
        else:
            time.sleep(PAUSE_S)


def lock(descriptor: int, limit_s: float, otherwise: str) -> None:
    """Lock a file or the directory. Raises UnsafeDirectoryError, with why, where others have it all the time."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                name = os.readlink(f"/proc/self/fd/{descriptor}")
                raise UnsafeDirectoryError(error.errno, otherwise, name) from error
            time.sleep(PAUSE_S)


def take(directory: int, stem: str) -> int:
    """Lock a file of this user's: by another name where somebody has put something there or keeps looking at it."""
    why: OSError = UnsafeDirectoryError(errno.EEXIST, "others have taken every name", stem)
    for number in range(MOST_FILES):
        name = f"{stem}.{os.geteuid()}{f'-{number}' if number else ''}"
        try:
            descriptor = _own(directory, name)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                raise
            why = error
            continue
        try:
            lock(descriptor, MOMENT_S, "others keep it locked")
        except UnsafeDirectoryError as error:
            os.close(descriptor)
            why = error
            continue
        return descriptor
    raise UnsafeDirectoryError(why.errno, str(why.strerror), why.filename) from why


def _own(directory: int, name: str) -> int:
    """Open a file that is this user's alone, for others to read."""
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | SAFELY, 0o644, dir_fd=directory)
    except FileExistsError:
        # Not to be created: the kernel would refuse it in such a directory.
        descriptor = os.open(name, os.O_RDWR | SAFELY, dir_fd=directory)
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_nlink != 1:
        os.close(descriptor)
        raise UnsafeDirectoryError(errno.EEXIST, "others have taken every name", name)
    os.fchmod(descriptor, 0o644)
    return descriptor


def look(directory: int, name: str) -> LockedFile | None:
    """Look whether a file is locked, and what it says; what is no plain file is nothing."""
    descriptor = os.open(name, os.O_RDONLY | SAFELY, dir_fd=directory)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # Of two who look at once, neither sees the other.
        except BlockingIOError:
            return LockedFile(info.st_uid, os.pread(descriptor, MOST_BYTES, 0), info.st_mtime)
        return None
    finally:
        os.close(descriptor)
