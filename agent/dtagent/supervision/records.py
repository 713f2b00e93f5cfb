"""What a supervisor writes of its attempt, written again where somebody removes it: a job outlives its own directory.

A cleaner, or a person, may take away the agent's directory under a job that runs. What runs there must stay known.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtagent.locations import AttemptFiles, make_private, write_atomic
from dtagent.protocol import sentences
from dtagent.protocol.jobs import MAX_NODE_RANKS
from dtagent.supervision import journal
from dtagent.supervision.family import Family
from dtagent.system import untrusted_files
from dtagent.system.untrusted_files import UnusableFileError

LOG = logging.getLogger("dtagent")
LOOK_S = 1.0
"""Between two looks."""
FILES_OF_RANK = 3
"""Its start, its end, its process groups."""
COPY_BYTES = 1 << 20
GONE = " (deleted)"
"""How /proc ends the name of a file that was removed while it is open."""


class Records:
    """Writes records, remembers them, and looks whether they are still there.

    Args:
        files: of the attempt, whose lock the caller holds.
        family: tells by what its processes are known by now, which may have files open that are gone.
    """

    def __init__(self, files: AttemptFiles, family: Callable[[], Family]) -> None:
        self._files = files
        self._family = family
        self._due = time.monotonic() + LOOK_S
        self._notes: list[dict[str, Any]] = []
        self._texts: dict[Path, str] = {}
        self._told: dict[Path, tuple[tuple[int, int], str]] = {}
        """What the ranks have written: inode and time of each file, and its text."""
        self._ranks: tuple[int, int] | None = None
        """The directory that it was read from."""
        self._is_without_ranks = False
        """Whether that is gone, and not yet made anew with all that was in it."""
        self._lock: int | None = None
        self._identity = _identity(files.lock)
        self._journal = _identity(files.journal)
        self._logs = files.logs.resolve()
        """As /proc names them, which a link on the way there must not change."""
        self._rescued: dict[str, _Rescued] = {}
        """Log → the file without a name that its processes still write to."""
        for path in (files.prepared, files.start, files.tree):
            with contextlib.suppress(OSError):
                self._texts[path] = path.read_text(encoding="utf-8")

    def keep(self, path: Path, text: str) -> None:
        """Write a file of the attempt. Raises OSError where that is not possible; it is tried again at each look."""
        if path in self._texts or len(self._texts) < 2 * MAX_NODE_RANKS:
            self._texts[path] = text
        write_atomic(path, text)

    def note(self, record: dict[str, Any]) -> None:
        """Add a record to the journal; where that cannot be made anew, it is tried again at each look.

        Raises:
            OSError: the journal is there, and takes nothing; or there are no file handles.
        """
        if not self._is_whole():
            try:
                self._restore()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise
                self._notes.append(record)
                return
        journal.append(self._files.journal, record)
        self._notes.append(record)

    def wait_s(self) -> float:
        """Return after how many seconds to look again."""
        return max(0.0, self._due - time.monotonic())

    def look(self) -> None:
        """Make anew what is gone, if it is time to look at all."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + LOOK_S
        try:
            self._learn()
            if not self._is_whole():
                self._restore()
        except OSError as error:  # A disk that is full, or somebody who is still at it: the next look may do better.
            LOG.warning("cannot make the records of %s anew: %s", self._files.directory, error)
        self.copy_logs()

    def copy_logs(self) -> None:
        """Copy what was printed into files that are gone."""
        for name, rescued in list(self._rescued.items()):
            with contextlib.suppress(OSError):
                rescued.copy(self._files.logs / name)

    def _learn(self) -> None:
        """Remember what the ranks themselves have written by now, and forget what they took away of earlier rounds."""
        if self._is_without_ranks or self._ranks not in (None, _identity(self._files.ranks)):
            return
        self._ranks = _identity(self._files.ranks)
        told = {}
        for path in itertools.islice(self._files.ranks.glob("*.json"), FILES_OF_RANK * MAX_NODE_RANKS):
            with contextlib.suppress(OSError, UnusableFileError):
                info = path.stat()
                stamp = (info.st_ino, info.st_mtime_ns)
                known = self._told.get(path)
                if known is None or known[0] != stamp:
                    known = stamp, untrusted_files.read(path).decode(errors="replace")
                told[path] = known
        self._told = told

    def _is_whole(self) -> bool:
        """Whether the lock is the one that is held, and everything else is there."""
        files = self._files
        if _identity(files.lock) != self._identity or _identity(files.journal) != self._journal:
            return False
        if self._is_without_ranks or self._ranks != _identity(files.ranks):
            return False
        return self._journal is not None and all(path.exists() for path in self._texts)

    def _restore(self) -> None:
        files = self._files
        self._is_without_ranks = self._is_without_ranks or self._ranks != _identity(files.ranks)
        for directory in (files.directory, files.logs, files.ranks, files.failures):
            make_private(directory)
        # The lock first: whoever finds an attempt that was started and holds no lock takes its supervisor for dead.
        if self._identity is None or _identity(files.lock) != self._identity:
            self._take_lock()
        self._rescue_logs()
        if self._journal is None or _identity(files.journal) != self._journal:
            now = time.time()
            said = sentences.FILES_MADE_ANEW()
            if not any(note.get("text") == said for note in self._notes):
                self._notes.append({"event": "warning", "time": now, "text": said, "notice": said.notice})
            # Under another name until it is whole: half a history would be another history.
            made = files.journal.with_name(f"{files.journal.name}.new")
            made.unlink(missing_ok=True)
            journal.create(made)
            for record in self._notes:
                journal.append(made, record)
            made.rename(files.journal)
            self._journal = _identity(files.journal)
        for path, text in sorted(self._texts.items(), key=lambda item: item[0] == files.start):
            if not path.exists():
                write_atomic(path, text)
        if self._is_without_ranks:
            for path, (_stamp, text) in self._told.items():
                if not path.exists():
                    write_atomic(path, text)
            self._is_without_ranks, self._ranks = False, _identity(files.ranks)

    def _take_lock(self) -> None:
        descriptor = os.open(self._files.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Whoever looks holds it for a moment.
        except BaseException:
            os.close(descriptor)
            raise
        if self._lock is not None:
            os.close(self._lock)
        info = os.fstat(descriptor)
        self._lock, self._identity = descriptor, (info.st_dev, info.st_ino)

    def _rescue_logs(self) -> None:
        """Find the logs that are gone among what the attempt's processes have open, and go on with them under a name.

        The new file has the bytes of the old one at the same places, and is noted to stand for it: whoever follows the
        log goes on where he was.
        """
        for process in self._family().scan():
            with contextlib.suppress(OSError):
                for entry in os.scandir(f"/proc/{process.pid}/fd"):
                    with contextlib.suppress(OSError):
                        self._rescue(entry.path)
        stands_for = {name: [item.inode, item.stands_for] for name, item in self._rescued.items()}
        if stands_for:
            write_atomic(self._files.rescued, json.dumps(stands_for))

    def _rescue(self, link: str) -> None:
        target = os.readlink(link)
        path = Path(target.removesuffix(GONE))
        if not target.endswith(GONE) or path.parent != self._logs or path.exists():
            return
        before = self._rescued.get(path.name)
        source = os.open(link, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Where there is one, it was a copy that is gone too: its source is still the one that is written to.
            rescued = _Rescued(source, before.stands_for if before is not None else os.fstat(source).st_ino, path)
        except OSError:
            os.close(source)
            raise
        if before is not None:
            os.close(before.source)
        self._rescued[path.name] = rescued
        rescued.copy(path)


class _Rescued:
    """A log whose name is gone, and the file that stands for it.

    Args:
        source: descriptor of what its processes write to.
        stands_for: inode number that those know who follow it.
        path: of the new file, which is made.
    """

    def __init__(self, source: int, stands_for: int, path: Path) -> None:
        self.source = source
        self.stands_for = stands_for
        self._copied = 0
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self.inode = os.fstat(descriptor).st_ino
        os.close(descriptor)

    def copy(self, path: Path) -> None:
        """Copy what has been written since."""
        size = os.fstat(self.source).st_size
        if size <= self._copied:
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            while self._copied < size:
                start = _data_from(self.source, self._copied, size)
                data = os.pread(self.source, min(COPY_BYTES, size - start), start)
                if data:
                    os.pwrite(descriptor, data, start)
                self._copied = start + len(data) if data else size
            if os.fstat(descriptor).st_size < size:
                os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)


def _data_from(descriptor: int, start: int, size: int) -> int:
    """Return the first offset from `start` on that is in no hole; `size` where nothing follows."""
    try:
        return os.lseek(descriptor, start, os.SEEK_DATA)
    except OSError:
        return size


def _identity(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        info = path.stat()
        return info.st_dev, info.st_ino
    return None
