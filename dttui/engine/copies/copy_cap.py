"""Keeps the copies of an attempt's logs within bounds, by dropping the middle of a file as the hosts do with theirs.

Holes are punched, so that every offset stays what it was. The line before a hole tells how much is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

from dttui.jobs.sparse_files import missing_notice, next_kept

DEFAULT_CAP_BYTES = 2 << 30
MOST_CAPS = 8
"""All copies of an attempt together keep as much as so many whole ones; the largest gives way first."""
LEAST_BYTES = 4 << 20
"""What each of them keeps even so."""
HEAD_BYTES = 512 * 1024
"""Kept from the beginning, where a program says what it is; an eighth of a smaller cap."""
MARK_BYTES = 256
"""Length of the line before a hole, whatever it tells, since it is written anew as the hole grows."""
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_FAR = 1 << 40
"""An offset where no copy has come to."""
_LIBC = ctypes.CDLL(None, use_errno=True)


class CopyCap:
    """The bound of all copies of an attempt; its nodes share it.

    Args:
        cap_bytes: kept of each copy.
    """

    def __init__(self, cap_bytes: int = DEFAULT_CAP_BYTES) -> None:
        self._cap_bytes = cap_bytes
        self._least_bytes = min(LEAST_BYTES, cap_bytes)
        self._head_bytes = min(cap_bytes // 8, HEAD_BYTES)
        self._dropped_bytes: dict[Path, int] = {}
        self._kept_bytes: dict[Path, int] = {}
        self._total_bytes = 0
        self._can_punch: bool | None = None

    def note(self, path: Path) -> None:
        """Look at a copy after it grew, or where another controller left it, and drop what is too much."""
        with contextlib.suppress(OSError):  # What was written is written; a later look may do better.
            self._set(path, path.stat().st_size)
            if self._kept_bytes[path] > self._cap_bytes:
                self._trim(path, self._cap_bytes)
            while self._total_bytes > MOST_CAPS * self._cap_bytes:
                largest, kept_bytes = max(self._kept_bytes.items(), key=lambda item: item[1])
                most = max(kept_bytes // 2, self._least_bytes)
                try:
                    if most >= kept_bytes or not self._trim(largest, most):
                        break
                except FileNotFoundError:
                    self._forget(largest)

    def takes(self, path: Path) -> bool:
        """Whether a copy may grow: only where nothing can be dropped from it is there an end to it."""
        if self._can_punch is not False:
            return True
        kept_bytes = self._kept_bytes.get(path, 0)
        is_full = kept_bytes >= self._cap_bytes or self._total_bytes >= MOST_CAPS * self._cap_bytes
        return not is_full or kept_bytes < self._least_bytes

    def _set(self, path: Path, size: int) -> None:
        if path not in self._dropped_bytes:
            with path.open("rb") as copy:
                head = self._head(copy.fileno())
                self._dropped_bytes[path] = next_kept(copy.fileno(), head) - head if size > head else 0
        kept_bytes = size - self._dropped_bytes[path]
        self._total_bytes += kept_bytes - self._kept_bytes.get(path, 0)
        self._kept_bytes[path] = kept_bytes

    def _forget(self, path: Path) -> None:
        """Count a copy no more that somebody has removed; one that takes its place is looked at anew."""
        self._total_bytes -= self._kept_bytes.pop(path, 0)
        self._dropped_bytes.pop(path, None)

    def _trim(self, path: Path, most: int) -> bool:
        """Drop the middle of a copy so that it keeps `most` bytes; return whether that was done."""
        with path.open("r+b", buffering=0) as copy:
            descriptor, size = copy.fileno(), os.fstat(copy.fileno()).st_size
            head, block = self._head(descriptor), _block(descriptor)
            if self._can_punch is None:
                self._can_punch = _punch(descriptor, _FAR, _FAR + block)
            # A sixteenth more than needed, so that it is not done for every chunk.
            end = (size - (most - head - most // 16)) // block * block
            if not self._can_punch or end <= head + self._dropped_bytes[path]:
                return False
            # Before the hole is there, and on the disk by then: no crash leaves one that nobody is told of.
            os.pwritev(descriptor, [_mark(descriptor, head, end)], head - MARK_BYTES, os.RWF_DSYNC)
            if not _punch(descriptor, head, end):
                return False
            self._dropped_bytes[path] = end - head
            self._set(path, size)
            return True

    def _head(self, descriptor: int) -> int:
        """Return where the hole of a copy begins."""
        block = _block(descriptor)
        return -(-self._head_bytes // block) * block


def _block(descriptor: int) -> int:
    return max(4096, os.fstat(descriptor).st_blksize)


def _mark(descriptor: int, head: int, end: int) -> bytes:
    """Return the line that tells of a hole between two offsets, to be written before it."""
    begins_line = os.pread(descriptor, 1, head - MARK_BYTES - 1) == b"\n"
    text = ("" if begins_line else "\n") + missing_notice(end - head + MARK_BYTES)
    return text.encode()[: MARK_BYTES - 1].ljust(MARK_BYTES - 1) + b"\n"


def _punch(descriptor: int, start: int, end: int) -> bool:
    """Give back the blocks between two offsets; return whether the file system can do that."""
    result: int = _LIBC.fallocate(
        descriptor, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_int64(start), ctypes.c_int64(end - start)
    )
    return result == 0
