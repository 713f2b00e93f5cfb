"""Files of our own: a crash or a full disk leaves no half of anything, which is written whole, or a line at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from dttui import locations

OF_ANOTHER_VERSION: Final = "ignore"
"""What becomes of the keys that a file of ours has and no model of today: another version of dttui wrote them."""
TAIL_BYTES = 64 * 1024
_APPENDING = threading.Lock()
"""Held while a line is appended and while a thinned file takes the place of another: no line goes to the old one."""
_thinning: set[Path] = set()


def make_private(directory: Path) -> None:
    """Make a directory, and what is missing above it, for this user alone, whatever the umask; what is there stays.

    Raises:
        OSError: it cannot be made.
    """
    if not directory.is_dir():
        make_private(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)


@contextlib.contextmanager
def alone(lock: Path, told: Path) -> Iterator[None]:
    """Keep other processes of this user out meanwhile.

    Args:
        lock: file that is locked; it and its directory are made.
        told: what is named where that cannot be done.

    Raises:
        UsageError: it cannot be made, or the file system has no locks.
    """
    try:
        make_private(lock.parent)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise locations.unwritable(told, fault) from fault
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as fault:
            raise locations.unwritable(told, fault) from fault
        yield
    finally:
        os.close(descriptor)


def read_kept(path: Path, key: str, version: int, most_bytes: int) -> dict[str, Any]:
    """Return what a file keeps under a key, of which nothing is lost where it cannot be had: then it is empty.

    Args:
        path: of the file, `{"version": …, KEY: {…}}`.
        key: of what is kept.
        version: of the file; one of another is not read.
        most_bytes: a larger file is none of dttui's.
    """
    with contextlib.suppress(OSError, ValueError, RecursionError):
        with path.open(encoding="utf-8") as stream:
            text = stream.read(most_bytes + 1)
        body = json.loads(text) if len(text) <= most_bytes else None
        if isinstance(body, dict) and body.get("version") == version and isinstance(body.get(key), dict):
            return dict(body[key])
    return {}


def write_atomic(path: Path, text: str) -> None:
    """Write a text file under a temporary name, flush it to the disk and rename it; parents are made.

    Nobody else may read a file or directory that is new; a file that is there keeps its permissions.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    make_private(path.parent)
    temporary = path.parent / f".{os.urandom(6).hex()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as stream:
            if path.exists():
                os.fchmod(descriptor, stat.S_IMODE(path.stat().st_mode))
            stream.write(text)
            stream.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # Some file systems flush no directory; the file is written all the same.
        _flush_directory(path.parent)


def append_line(path: Path, line: str, *, durable: bool = False) -> None:
    """Append one line in one write, so that a reader never sees half of it mixed with another.

    Of a character that UTF-8 does not have a question mark is written.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    with _APPENDING:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            data = line.encode(errors="replace") + b"\n"
            if (written := os.write(descriptor, data)) < len(data):
                os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            if durable:
                os.fdatasync(descriptor)
        finally:
            os.close(descriptor)


def thin_out(path: Path, recent_bytes: int, thin: Callable[[bytes], bytes]) -> threading.Thread | None:
    """Have lines of a file left out, on a thread of its own; what `append_line` adds meanwhile is kept.

    Where it cannot be written the file is as it was.

    Args:
        path: of the file; nobody but this process writes to it.
        recent_bytes: at its end, of which every line stays.
        thin: of the lines before those, returns what stays.

    Returns:
        The thread; `None` where it is being done already, or this host lets no more threads start.
    """

    def run() -> None:
        try:
            with contextlib.suppress(OSError):
                _replace_thinned(path, recent_bytes, thin)
        finally:
            _thinning.discard(path)

    if path in _thinning:
        return None
    _thinning.add(path)
    thread = threading.Thread(target=run, name="thin-out")
    try:
        thread.start()
    except RuntimeError:
        _thinning.discard(path)
        return None
    return thread


def _replace_thinned(path: Path, recent_bytes: int, thin: Callable[[bytes], bytes]) -> None:
    temporary = path.with_suffix(".tmp")
    try:
        with path.open("rb") as source, _opened_private(temporary) as target:
            data = source.read()
            start = data.find(b"\n", max(0, len(data) - recent_bytes)) + 1
            target.write(thin(data[:start]))
            target.write(data[start:])
            target.flush()
            os.fsync(target.fileno())
            with _APPENDING:
                target.write(source.read())  # A few lines, so that who appends hardly waits.
                target.flush()
                os.fsync(target.fileno())
                temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # As above.
        _flush_directory(path.parent)


def _opened_private(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")


def cut_torn_line(path: Path) -> None:
    """Cut off what follows the last newline of a file: a write that a crash interrupted."""
    with contextlib.suppress(FileNotFoundError), path.open("r+b") as stream:
        end = position = stream.seek(0, os.SEEK_END)
        while position > 0:
            start = max(0, position - TAIL_BYTES)
            stream.seek(start)
            found = stream.read(position - start).rfind(b"\n")
            if found >= 0:
                position = start + found + 1
                break
            position = start
        if position < end:
            stream.truncate(position)


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
