"""Keeps the users of a host off one another's GPUs: by locked files in a directory that all of them share.

A lock lasts for as long as some process has the file open that was locked, and no longer. No device is opened, so that
GPUs can be reset and persistence mode be switched. Nothing here knows a driver: GPUs go by names.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import math
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dtagent.system.retry import PAUSE_S

LOG = logging.getLogger("dtagent")
VARIABLE = "DTAGENT_GPU_LOCKS"
"""Names another directory, where containers share one, say."""
DEFAULT = "/var/tmp/dtagent-gpus"  # noqa: S108 - whoever uses it looks what it is, and whose the files in it are
TURN_S = 5.0
"""For others to look and to choose."""
MOMENT_S = 1.0
"""For others to see to the mode of the directory, or to end a look at one file."""
MOST_FILES = 9
"""Of one user for one GPU, where others have spoilt the ones before."""
MOST_BYTES = 4096
_FILE = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]{0,99})\.[0-9]{1,10}(?:-[0-9])?")
_JOB = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NOBODY_CAN = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)


class UnsafeDirectoryError(OSError):
    """What lies where the directory of locks should is none in which users are safe from one another."""


@dataclass(frozen=True)
class Purpose:
    """What a GPU is held for."""

    job_id: str = ""
    """Empty where the holder did not say."""
    attempt: int = 0
    since_s: float = 0.0
    """Unix time."""
    until_s: float | None = None
    """Unix time until which its user means to need it; nothing happens then."""
    is_started: bool = True
    """Whether the job runs; until then whoever prepares it may give way."""


@dataclass(frozen=True)
class Holder:
    """Who holds a GPU."""

    gpu: str
    uid: int
    """Of the owner of the file, whom the kernel vouches for."""
    purpose: Purpose


class GpuLocks:
    """The locks of one host, as this process's user takes and sees them. For any number of threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def take(self, gpus: Sequence[str], count: int, purpose: Purpose) -> dict[str, int | None]:
        """Lock the first GPUs that nobody holds; return the descriptors that hold them, to be closed by the caller.

        Args:
            gpus: names, the most wanted first.
            count: how many; fewer are locked where there are not as many.
            purpose: what others are told.

        Returns:
            name → descriptor; `None` where this host has no place for such files.

        Raises:
            UnsafeDirectoryError: see there; or others keep it to themselves.
            OSError: the host is short of something.
        """
        taken: dict[str, int | None] = {}
        with _opened(self._directory) as directory, contextlib.ExitStack() as stack:
            if directory is None:
                return dict.fromkeys(gpus[:count])
            _lock(directory, TURN_S, "others keep it locked")
            held = {holder.gpu for holder in _holders(directory)}
            for gpu in gpus:
                if len(taken) < count and gpu not in held:
                    descriptor = _take(directory, gpu)
                    stack.callback(os.close, descriptor)
                    tell(descriptor, purpose)
                    taken[gpu] = descriptor
            stack.pop_all()
        return taken

    def holders(self) -> list[Holder]:
        """Return who holds which GPUs, this user too; nobody where that cannot be told."""
        with contextlib.suppress(OSError), _opened(self._directory, makes=False) as directory:
            if directory is not None:
                return _holders(directory)
        return []


def from_environment(environment: Mapping[str, str] = os.environ) -> GpuLocks:
    """Return the locks of this host."""
    return GpuLocks(Path(environment.get(VARIABLE) or DEFAULT))


def tell(descriptor: int, purpose: Purpose) -> None:
    """Let others read what a GPU is held for; without room on the disk it is held all the same."""
    text = json.dumps(asdict(purpose)).encode()
    with contextlib.suppress(OSError):
        os.pwrite(descriptor, text, 0)
        os.ftruncate(descriptor, len(text))


def restore(descriptor: int) -> None:
    """Lock a file anew that was removed, under the same descriptor."""
    if os.fstat(descriptor).st_nlink:
        return
    path = Path(os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)"))
    with contextlib.suppress(OSError), _opened(path.parent) as directory:
        if directory is not None:
            made = _take(directory, path.name.partition(".")[0])
            try:
                os.pwrite(made, os.pread(descriptor, MOST_BYTES, 0), 0)
                os.dup2(made, descriptor, inheritable=False)
            finally:
                os.close(made)


@contextlib.contextmanager
def _opened(path: Path, *, makes: bool = True) -> Iterator[int | None]:
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


def _lock(descriptor: int, limit_s: float, otherwise: str) -> None:
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                name = os.readlink(f"/proc/self/fd/{descriptor}")
                raise UnsafeDirectoryError(error.errno, otherwise, name) from error
            time.sleep(PAUSE_S)


def _take(directory: int, gpu: str) -> int:
    """Lock a file of this user's: by another name where somebody has put something there or keeps looking at it."""
    why: OSError = UnsafeDirectoryError(errno.EEXIST, "others have taken every name", gpu)
    for number in range(MOST_FILES):
        name = f"{gpu}.{os.geteuid()}{f'-{number}' if number else ''}"
        try:
            descriptor = _own(directory, name)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                raise
            why = error
            continue
        try:
            _lock(descriptor, MOMENT_S, "others keep it locked")
        except UnsafeDirectoryError as error:
            os.close(descriptor)
            why = error
            continue
        return descriptor
    raise UnsafeDirectoryError(why.errno, str(why.strerror), why.filename) from why


def _own(directory: int, name: str) -> int:
    """Open a file that is this user's alone, for others to read."""
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN, 0o644, dir_fd=directory)
    except FileExistsError:
        # Not to be created: the kernel would refuse it in such a directory.
        descriptor = os.open(name, os.O_RDWR | _OPEN, dir_fd=directory)
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_nlink != 1:
        os.close(descriptor)
        raise UnsafeDirectoryError(errno.EEXIST, "others have taken every name", name)
    os.fchmod(descriptor, 0o644)
    return descriptor


def _holders(directory: int) -> list[Holder]:
    found = []
    for name in sorted(os.listdir(directory)):
        named = _FILE.fullmatch(name)
        with contextlib.suppress(OSError):
            holder = _holder(directory, name, named[1]) if named else None
            found += [holder] if holder is not None else []
    return found


def _holder(directory: int, name: str, gpu: str) -> Holder | None:
    """Look whether a file is locked, and what it says; what is no plain file is nothing."""
    descriptor = os.open(name, os.O_RDONLY | _OPEN, dir_fd=directory)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # Of two who look at once, neither sees the other.
        except BlockingIOError:
            return Holder(gpu, info.st_uid, _purpose(os.pread(descriptor, MOST_BYTES, 0), info.st_mtime))
        return None
    finally:
        os.close(descriptor)


def _purpose(text: bytes, written_s: float) -> Purpose:
    """Read what another user has written, which may be anything."""
    try:
        told = json.loads(text)
        job_id, attempt, since_s, until_s = (told[key] for key in ("job_id", "attempt", "since_s", "until_s"))
    except (ValueError, RecursionError, TypeError, KeyError):
        return Purpose(since_s=written_s)
    return Purpose(
        job_id if isinstance(job_id, str) and _JOB.fullmatch(job_id) else "",
        attempt if isinstance(attempt, int) and 0 <= attempt < 10**9 else 0,
        _time(since_s) or written_s,
        _time(until_s),
        told.get("is_started") is not False,
    )


def _time(told: object) -> float | None:
    """Return a point in time that a calendar has."""
    is_time = isinstance(told, (int, float)) and not isinstance(told, bool) and math.isfinite(told)
    return float(told) if is_time and 0 < told < 2**33 else None  # type: ignore[arg-type,operator]  # as just seen
