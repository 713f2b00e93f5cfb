"""Where values of secrets are in the copies of a job's logs: places, and no value, so that a copy keeps every byte.

Whoever shows a log leaves them out without knowing what they are. A file for each copy has them in order, as pairs of
offsets.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from dttui.files import make_private
from dttui.jobs.log_marks import is_mark
from dttui.redaction import Redaction, Span, united

_SPAN = struct.Struct("<QQ")
_FOLDER = ".secrets"
"""Among the directories of nodes, none of which begins with a dot."""


def write_masks(log: Path, spans: Iterable[Span]) -> None:
    """Note places in a copy, before what they hold is written to it: whoever reads that then finds them noted.

    Raises:
        OSError: there is no room, say; what was noted before still is.
    """
    added = list(spans)
    if not added:
        return
    path = _masks_of(log)
    make_private(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        end = size // _SPAN.size * _SPAN.size
        # What came before was looked through again, where a value may begin; or this was noted and then not written.
        first = min(added)[0]
        while end and (last := _at(descriptor, end - _SPAN.size))[1] >= first:
            added.append(last)
            end -= _SPAN.size
        data = b"".join(_SPAN.pack(*span) for span in united(added))
        # Over what was there, so that at no time it is missing.
        if (written := os.pwrite(descriptor, data, end)) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if end + written < size:
            os.ftruncate(descriptor, end + written)
    finally:
        os.close(descriptor)


def read_masks(log: Path, start: int, end: int) -> list[Span]:
    """Return the places between two offsets, counted from the first of them."""
    try:
        with _masks_of(log).open("rb", buffering=0) as stream:
            return [(max(0, at - start), min(to, end) - start) for at, to in _between(stream.fileno(), start, end)]
    except OSError:
        return []
    except struct.error:  # Several have become one meanwhile.
        return read_masks(log, start, end)


def hidden(log: Path, start: int, data: bytes, redaction: Redaction) -> bytes:
    """Return bytes of a copy, read at an offset, as they may be shown; our own lines in it say what they say.

    Args:
        log: the copy.
        start: where the bytes are in it.
        data: the bytes.
        redaction: finds values that are known here.
    """
    known = [span for span in read_masks(log, start, start + len(data)) if not _is_in_mark(data, span)]
    return redaction.hidden(data, known)


def _is_in_mark(data: bytes, span: Span) -> bool:
    """Whether a place is in a line of ours: those before a hole are written over what was there."""
    end = data.find(b"\n", span[0])
    line = data[data.rfind(b"\n", 0, span[0]) + 1 : end if end >= 0 else len(data)]
    return is_mark(line.decode(errors="replace"))


def _masks_of(log: Path) -> Path:
    return log.parent.with_name(_FOLDER) / log.parent.name / log.name


def _at(descriptor: int, offset: int) -> Span:
    start, end = _SPAN.unpack(os.pread(descriptor, _SPAN.size, offset))
    return start, end


def _between(descriptor: int, start: int, end: int) -> list[Span]:
    """Return the places that have a part between two offsets."""
    low, high = 0, os.fstat(descriptor).st_size // _SPAN.size
    count = high
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _at(descriptor, middle * _SPAN.size)[1] > start else (middle + 1, high)
    found = []
    while low < count and (span := _at(descriptor, low * _SPAN.size))[0] < end:
        found.append(span)
        low += 1
    return found
