"""Keeps the logs of an attempt within their cap, by dropping the middle of a file. Standard library only.

Holes are punched, so every offset stays what it was, and who reads finds out from the file where one is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from dtagent.protocol import sentences
from dtagent.protocol.said import Said
from dtagent.system import allocation

MIN_CAP_BYTES = 1 << 20
REPORT_CAP_BYTES = 256 << 20
"""Kept of the metrics that a job or its logs report."""
SHORTEST_S, LONGEST_S = 0.05, 1.0
"""Between two looks."""
BURST_BYTES_PER_S = 256 << 20
"""How fast a file that lay still may begin to grow."""
SCARCE_BYTES = 256 << 20
"""With less than this free, or a twentieth of a small disk, logs give way: a gap is better than a job that fails."""
SCARCE_CAP_BYTES = 16 << 20
"""What a stream keeps even so."""
FULL_BYTES = 64 * 1024
"""With less than this free a disk is full."""

MOST_CUT = 1024
"""Logs that are told to have been cut: a script may make as many files there as it likes."""

_FAR = 1 << 40
"""An offset where no log has come to at its first second."""


class LogCap:
    """Looks after the files of one directory, as often as they grow quickly.

    Args:
        directory: of the logs.
        cap_bytes: kept of each file; an eighth of that from its beginning, where a program says what it is.
        warn: told, once each, what a person has to know.
        reports: files of numbers elsewhere, that are kept within `REPORT_CAP_BYTES` as well.
        on_cut: told the name of each log, once, when it first loses its middle.
    """

    def __init__(
        self,
        directory: Path,
        cap_bytes: int,
        warn: Callable[[Said], None],
        reports: tuple[Path, ...] = (),
        on_cut: Callable[[str], None] = lambda _name: None,
    ) -> None:
        self._directory = directory
        self._reports = reports
        self._cap_bytes = max(cap_bytes, MIN_CAP_BYTES)
        self._warn = warn
        self._told: set[str] = set()
        self._on_cut = on_cut
        self._cut: set[str] = set()
        self._can_punch: bool | None = None
        self._kept_from: dict[tuple[str, int], int] = {}
        """File name and inode → end of the hole."""
        self._sizes: dict[str, int] = {}
        self._kept_bytes: dict[str, int] = {}
        self._looked_at = self._due = time.monotonic()

    def wait_s(self) -> float:
        """Return after how many seconds to look again."""
        return max(0.0, self._due - time.monotonic())

    def look(self) -> None:
        """Drop what is beyond the cap, if it is time to look at all."""
        now = time.monotonic()
        if now < self._due:
            return
        passed_s, self._looked_at = max(now - self._looked_at, 1e-3), now
        self._due = now + LONGEST_S
        with contextlib.suppress(OSError):  # The script may have removed the directory: not worth a job's life.
            cap = self._cap_now()
            files = [(Path(entry.path), cap) for entry in os.scandir(self._directory)]
            files += [(path, min(cap, REPORT_CAP_BYTES)) for path in self._reports]
            growth = max((self._look_at(path, most) for path, most in files), default=0)
            # Soon enough that no file outgrows its cap by more than a sixteenth at its pace, or a quarter in a burst.
            room = max(0, cap - max(self._kept_bytes.values(), default=0))
            due_s = min(cap / 16 * passed_s / max(growth, 1), (room + cap / 4) / BURST_BYTES_PER_S)
            self._due = now + min(max(due_s, SHORTEST_S), LONGEST_S)

    def _look_at(self, path: Path, cap: int) -> int:
        """Trim one file; return by how much it grew since the last look."""
        try:
            info = path.lstat()
        except FileNotFoundError:
            return 0
        if not stat.S_ISREG(info.st_mode):
            return 0
        size = info.st_size
        self._kept_bytes[path.name] = info.st_blocks * 512
        growth = size - self._sizes.get(path.name, 0)
        self._sizes[path.name] = size
        if self._can_punch is None or (self._can_punch and size > cap):
            self._trim(path, size, cap)
        return growth

    def _cap_now(self) -> int:
        info = os.statvfs(self._directory)
        free = info.f_frsize * (info.f_bavail if os.getuid() else info.f_bfree)
        if free < FULL_BYTES:
            self._tell("full", sentences.DISK_WAS_FULL(path=str(self._directory), time=_clock()))
        if free > min(SCARCE_BYTES, info.f_frsize * info.f_blocks // 20):
            return self._cap_bytes
        largest = max(self._kept_bytes.values(), default=0)
        return min(self._cap_bytes, max(SCARCE_CAP_BYTES, largest // 2))

    def _trim(self, path: Path, size: int, cap: int) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return  # The script took it away.
        try:
            info = os.fstat(descriptor)
            if self._can_punch is None:
                self._can_punch = self._punch(descriptor, _FAR, _FAR + info.st_blksize)
            if not self._can_punch:
                return
            block = max(4096, info.st_blksize)
            head = -(-(cap // 8) // block) * block
            kept_from = self._kept_from.get((path.name, info.st_ino), head)
            if size - kept_from <= cap - head:
                return
            # A sixteenth more than needed, so that it is not done for every line.
            end = (size - (cap - head - cap // 16)) // block * block
            if end > kept_from and self._punch(descriptor, kept_from, end):
                self._kept_from[path.name, info.st_ino] = end
                if path.parent == self._directory and path.name not in self._cut and len(self._cut) < MOST_CUT:
                    self._cut.add(path.name)
                    self._on_cut(path.name)
        finally:
            os.close(descriptor)

    def _punch(self, descriptor: int, start: int, end: int) -> bool:
        try:
            allocation.punch(descriptor, start, end)
        except OSError as error:
            if error.errno not in (errno.EINTR, errno.ENOSPC, errno.EDQUOT):
                self._can_punch = False
                said = sentences.LOGS_UNCAPPED(path=str(self._directory), reason=str(error.strerror))
                self._tell("punch", said)
            return False
        return True

    def _tell(self, what: str, message: Said) -> None:
        if what not in self._told:
            self._told.add(what)
            self._warn(message)


def _clock() -> str:
    return time.strftime("%H:%M:%S %z")
