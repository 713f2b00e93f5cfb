"""An append-only file of records: JSON lines with a checksum each, on disk before `append` returns.

Its room is set aside when it is made, so that a disk which fills up later cannot swallow the last word on an attempt.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtagent.locations import AttemptFiles
from dtagent.system import allocation, untrusted_files

ROOM_BYTES = 1 << 20
"""Set aside for a journal: thousands of records."""
MAX_BYTES = 16 << 20
"""How much of a journal is read, from its end; ours are a thousandth of that."""


@dataclass(frozen=True)
class Contents:
    """What a journal holds."""

    records: list[dict[str, Any]]
    """Those whose checksum holds, in order."""
    damaged: list[bytes]
    """The other lines; but an unfinished last one may be on its way, and is not told."""


def create(path: Path) -> None:
    """Make an empty journal with its room, and see to it that it is found after a power cut. A second call is harmless.

    Raises:
        OSError: there is no room for it (ENOSPC).
    """
    with _opened(path) as descriptor:
        _set_aside(path, descriptor)
        os.fsync(descriptor)
    _sync_directories(path.parent)


def append(path: Path, record: dict[str, Any]) -> None:
    """Add one record; it has survived a power cut once this returns. Only one process writes at a time.

    Raises:
        OSError: it could not be written; nothing of it will be read.
    """
    body = json.dumps(record, separators=(",", ":")).encode()
    with _opened(path) as descriptor:
        size = os.fstat(descriptor).st_size
        if size == 0:
            with contextlib.suppress(OSError):  # It may fit even so.
                _set_aside(path, descriptor)
                _sync_directories(path.parent)
        elif os.pread(descriptor, 1, size - 1) != b"\n":
            _mend(path, descriptor, size)
        line = b"%08x %s\n" % (zlib.crc32(body), body)
        size = os.fstat(descriptor).st_size
        try:
            _write(descriptor, line)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not reserve_path(path).exists():
                raise
            reserve_path(path).unlink()
            os.ftruncate(descriptor, size)
            _write(descriptor, line)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the records whose checksum holds, in order."""
    return inspect(path).records


def inspect(path: Path) -> Contents:
    """Return what a journal holds; a missing one holds nothing. Whatever its bytes are, they raise nothing."""
    try:
        with untrusted_files.opened(path) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - MAX_BYTES))
            *lines, last = stream.read(MAX_BYTES).split(b"\n")
    except FileNotFoundError:
        return Contents([], [])
    except untrusted_files.UnusableFileError:
        return Contents([], [b"no regular file"])
    found = [(line, _parse(line)) for line in lines if line]
    records = [record for _line, record in found if record is not None]
    damaged = [line for line, record in found if record is None]
    unfinished = _parse(last)
    return Contents([*records, unfinished] if unfinished is not None else records, damaged)


def has_run(files: AttemptFiles) -> bool:
    """Whether anything shows that a supervisor was here, however damaged: then nothing is started again."""
    if files.supervisor.exists() or damaged_path(files.journal).exists():
        return True
    with contextlib.suppress(FileNotFoundError):
        if files.journal.stat().st_size:
            return True
    return any(directory.is_dir() and any(directory.iterdir()) for directory in (files.logs, files.ranks))


def damaged_path(path: Path) -> Path:
    """Return where damaged lines of a journal are kept."""
    return path.with_name(f"{path.name}.damaged")


def reserve_path(path: Path) -> Path:
    """Return where room for a journal is held that cannot be set aside in the file itself."""
    return path.with_name(f"{path.name}.reserve")


def quarantine(path: Path, damaged: list[bytes]) -> None:
    """Keep a copy of damaged lines beside the journal, each once, for a person to look at."""
    aside = damaged_path(path)
    known = set(aside.read_bytes().split(b"\n")) if aside.exists() else set()
    new = [line[:ROOM_BYTES] + b"\n" for line in damaged if line[:ROOM_BYTES] not in known]
    if new:
        with _opened(aside) as descriptor:
            os.write(descriptor, b"".join(new))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _mend(path: Path, descriptor: int, size: int) -> None:
    """Cut off a torn last record, which was never acknowledged; one that lacks only its newline gets it."""
    tail = os.pread(descriptor, ROOM_BYTES, max(0, size - ROOM_BYTES))
    rest = tail[tail.rfind(b"\n") + 1 :]
    if _parse(rest) is not None or (rest == tail and size > len(tail)):
        os.write(descriptor, b"\n")
        return
    with contextlib.suppress(OSError):
        quarantine(path, [rest])  # If it was not torn but its newline damaged, it was acknowledged once.
    os.ftruncate(descriptor, size - len(rest))
    with contextlib.suppress(OSError):  # The cut gave back what was set aside beyond it.
        _set_aside(path, descriptor)


def _parse(line: bytes) -> dict[str, Any] | None:
    checksum, _, body = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(body):
        return None
    try:
        record = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _write(descriptor: int, line: bytes) -> None:
    while line:
        line = line[os.write(descriptor, line) :]
    os.fdatasync(descriptor)


def _set_aside(path: Path, descriptor: int) -> None:
    try:
        allocation.set_aside(descriptor, ROOM_BYTES)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise
        if not reserve_path(path).exists():
            _reserve(reserve_path(path))


def _reserve(aside: Path) -> None:
    """Hold room in a file that gives way to the journal, where the file system can set none aside."""
    try:
        with _opened(aside) as descriptor:
            # Not zeros: a file system that compresses holds no room for those.
            _write(descriptor, os.urandom(ROOM_BYTES))
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def _sync_directories(directory: Path) -> None:
    """Make the names down to the attempt's durable: those of the job and of all jobs were made with it."""
    for path in (directory, *directory.parents[:2]):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
