"""Writing files so that a crash or a full disk leaves no half of anything: whole, or a line at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

TAIL_BYTES = 64 * 1024


def write_atomic(path: Path, text: str) -> None:
    """Write a text file under a temporary name, flush it to the disk and rename it; parents are made.

    Nobody else may read a file or directory that is new; a file that is there keeps its permissions.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.parent / f".{secrets.token_hex(6)}.tmp"
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

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        data = line.encode() + b"\n"
        if (written := os.write(descriptor, data)) < len(data):
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if durable:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


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
