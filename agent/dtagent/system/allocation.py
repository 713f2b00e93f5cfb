"""Room on a disk, given to a file before it needs it or taken from its middle. Standard library only."""

from __future__ import annotations

import ctypes
import os

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_LIBC = ctypes.CDLL(None, use_errno=True)


def set_aside(descriptor: int, size: int) -> None:
    """Give a file the blocks of its first `size` bytes, without making it longer.

    Raises:
        OSError: there is no room (ENOSPC), or the file system cannot do it (EOPNOTSUPP).
    """
    _fallocate(descriptor, _KEEP_SIZE, 0, size)


def punch(descriptor: int, start: int, end: int) -> None:
    """Give back the blocks between two offsets, multiples of the block size; the file stays as long as it is.

    Raises:
        OSError: the file system cannot do it (EOPNOTSUPP).
    """
    _fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, start, end - start)


def _fallocate(descriptor: int, mode: int, start: int, size: int) -> None:
    if _LIBC.fallocate(descriptor, mode, ctypes.c_int64(start), ctypes.c_int64(size)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
