"""Reading files in whose middle a hole was punched: what is missing there is passed over at once."""

from __future__ import annotations

import errno
import os

from dttui.i18n import _


def read_kept(descriptor: int, offset: int, most: int) -> tuple[int, bytes]:
    """Return the first offset from `offset` on whose bytes are kept, and bytes from there, up to the next hole."""
    while True:
        start = next_kept(descriptor, offset)
        data = os.pread(descriptor, most, start)
        # What a hole is punched into while it is read comes as zeros: only what is still there afterwards counts.
        kept = _seek(descriptor, start, os.SEEK_HOLE) - start
        if kept > 0 or not data:
            return start, data[:kept]


def next_kept(descriptor: int, offset: int) -> int:
    """Return the first offset from `offset` on that is in no hole; the file's length where nothing follows."""
    return _seek(descriptor, offset, os.SEEK_DATA)


def kept_parts(descriptor: int) -> list[tuple[int, int]]:
    """Return where the bytes of a file are, from its beginning: the ends of each part between holes."""
    size, end, parts = os.fstat(descriptor).st_size, 0, []
    while (start := next_kept(descriptor, end)) < size:
        end = _seek(descriptor, start, os.SEEK_HOLE)
        parts.append((start, min(end, size)))
    return parts


def last_hole_end(descriptor: int) -> int:
    """Return the offset behind the last hole of a file; 0 where it has none."""
    parts = kept_parts(descriptor)
    return parts[-1][0] if parts else 0


def missing_notice(count: int) -> str:
    """Return what is told of bytes that a copy has not got."""
    return _("… {count:,} bytes of this log were not kept in this copy …").format(count=count)


def _seek(descriptor: int, start: int, whence: int) -> int:
    size = os.fstat(descriptor).st_size
    if start >= size:
        return start
    try:
        return os.lseek(descriptor, start, whence)
    except OSError as error:
        # ENXIO: nothing but a hole follows. Else the file system knows no holes, and so has none.
        return size if error.errno == errno.ENXIO or whence == os.SEEK_HOLE else start
