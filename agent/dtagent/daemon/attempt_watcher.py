"""Waits for something to happen to attempts: one thread looks at each of them once for all who wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dtagent.attempts import adoption
from dtagent.errors import RpcError
from dtagent.locations import AttemptFiles
from dtagent.logs import streams
from dtagent.protocol import sentences
from dtagent.protocol.rpc import ErrorCode

LOG = logging.getLogger("dtagent")
BUSY_PACE_S = 0.1
"""Between two looks at an attempt where something happened of late."""
QUIET_PACE_S = 0.5
QUIET_AFTER_S = 10.0


@dataclass(frozen=True)
class AttemptSnapshot:
    """An attempt as it was at one moment."""

    stamp: str
    """Changes whenever the status of the attempt may have."""
    sizes: streams.Sizes


@dataclass(eq=False)
class _Waiter:
    is_good: Callable[[AttemptSnapshot], bool]
    loop: asyncio.AbstractEventLoop
    look: asyncio.Future[AttemptSnapshot]

    def deliver(self, look: AttemptSnapshot) -> None:
        with contextlib.suppress(RuntimeError):  # The loop was closed meanwhile, and nobody waits.
            self.loop.call_soon_threadsafe(self._set, look)

    def _set(self, look: AttemptSnapshot) -> None:
        if not self.look.done():
            self.look.set_result(look)


@dataclass
class _Watched:
    waiters: list[_Waiter] = field(default_factory=list)
    new: list[_Waiter] = field(default_factory=list)
    """Those that nothing was looked at for yet: what was seen before they came may be older than what they know."""
    seen: AttemptSnapshot | None = None
    changed_at: float = float("-inf")
    due_at: float = float("-inf")
    failure: str = ""
    """Why the last look failed, which is logged once."""


class AttemptWatcher:
    """The waiting of all clients. The event loop is left alone until what one of them waits for is there."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._watched: dict[AttemptFiles, _Watched] = {}
        self._thread: threading.Thread | None = None

    async def wait(
        self, files: AttemptFiles, is_good: Callable[[AttemptSnapshot], bool], timeout_s: float
    ) -> AttemptSnapshot | None:
        """Return the first look at an attempt that is good, `None` where none was in time.

        Args:
            files: of the attempt.
            is_good: called on another thread.
            timeout_s: how long to wait.

        Raises:
            RpcError: BUSY, there can be no more threads on this host.
        """
        loop = asyncio.get_running_loop()
        waiter = _Waiter(is_good, loop, loop.create_future())
        with self._condition:
            self._start()
            self._watched.setdefault(files, _Watched()).new.append(waiter)
            self._condition.notify()
        try:
            return await asyncio.wait_for(waiter.look, timeout_s)
        except asyncio.TimeoutError:
            return None
        finally:
            self._forget(files, waiter)

    def _start(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name="attempt-watcher", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise RpcError(ErrorCode.BUSY, sentences.NO_MORE_THREADS()) from error
        self._thread = thread

    def _forget(self, files: AttemptFiles, waiter: _Waiter) -> None:
        with self._condition:
            watched = self._watched[files]
            for waiters in (watched.waiters, watched.new):
                if waiter in waiters:
                    waiters.remove(waiter)
            if not watched.waiters and not watched.new:
                del self._watched[files]

    def _run(self) -> None:
        while True:
            for files, watched, new in self._next():
                try:
                    self._see(watched, look_at(files), new)
                    watched.failure = ""
                except Exception as error:  # The top of a worker: who waits is answered by a later look.
                    watched.seen = None  # Which is then news to all of them.
                    if repr(error) != watched.failure:
                        watched.failure = repr(error)
                        LOG.exception("cannot look at %s", files.directory)

    def _next(self) -> list[tuple[AttemptFiles, _Watched, list[_Waiter]]]:
        """Wait until attempts are due; return them, each with those that have come since the last look."""
        with self._condition:
            while True:
                now = time.monotonic()
                due = []
                for files, watched in self._watched.items():
                    if watched.new or watched.due_at <= now:
                        is_quiet = now - watched.changed_at > QUIET_AFTER_S
                        watched.due_at = now + (QUIET_PACE_S if is_quiet else BUSY_PACE_S)
                        new, watched.new = watched.new, []
                        watched.waiters += new
                        due.append((files, watched, new))
                if due:
                    return due
                next_at = min((watched.due_at for watched in self._watched.values()), default=None)
                self._condition.wait(None if next_at is None else next_at - now)

    def _see(self, watched: _Watched, look: AttemptSnapshot, new: list[_Waiter]) -> None:
        with self._condition:
            if watched.seen == look:
                asking = new
            else:
                watched.seen, watched.changed_at = look, time.monotonic()
                asking = list(watched.waiters)
        for waiter in asking:
            if waiter.is_good(look):
                waiter.deliver(look)


def look_at(files: AttemptFiles) -> AttemptSnapshot:
    """Look at an attempt."""
    parts = [_size(files.journal), *_stamp(files.ranks), *_stamp(files.failures), *_file_stamp(files.health)]
    parts += [files.start.exists(), files.discarded.exists(), adoption.is_locked(files.lock)]
    return AttemptSnapshot(":".join(str(int(part)) for part in parts), streams.sizes(files))


def _size(path: os.PathLike[str]) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _file_stamp(path: os.PathLike[str]) -> tuple[int, int]:
    """Return what changes when another file takes its place."""
    try:
        info = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return 0, 0
    return info.st_mtime_ns, info.st_ino


def _stamp(directory: os.PathLike[str]) -> tuple[int, int]:
    """Return how many records there are, and what changes when one takes the place of another.

    It may have been written before another that was seen already, and got its name only now.
    """
    try:
        with os.scandir(directory) as entries:
            records = [entry for entry in entries if entry.name.endswith(".json")]
            return len(records), sum(entry.stat(follow_symlinks=False).st_mtime_ns + entry.inode() for entry in records)
    except FileNotFoundError:
        return 0, 0
