"""Looks through directories that a job has written to: never along a link, and within bounds of time and number."""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from dtagent.protocol.saved import MAX_DEPTH, LeftOut, is_unsafe

MOST_ENTRIES = 200_000
"""Names that are looked at for one question."""
MOST_EXAMPLES = 8


class WalkedFile(NamedTuple):
    """A regular file."""

    path: str
    """Relative to where the walk began; empty for a file that is itself the beginning."""
    seen: os.stat_result

    @property
    def changed_at(self) -> float:
        """Unix time at which it was last written or put there: what is unpacked may carry an old time."""
        return max(self.seen.st_mtime, self.seen.st_ctime)


@dataclass
class Walk:
    """What one question may cost, and what it has not told."""

    seconds: float
    is_whole: bool = True
    """Whether everything was looked at so far."""
    links: int = 0
    special: int = 0
    names: int = 0
    unreadable: int = 0
    _examples: list[str] = field(default_factory=list)
    _entries: int = 0

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + self.seconds

    @property
    def left_out(self) -> LeftOut:
        """What was there and is no file that can be told."""
        return LeftOut(self.links, self.special, self.names, self.unreadable, self._examples)

    def files(
        self, top: str, excluded: Collection[str] = (), skips: Callable[[str], bool] | None = None
    ) -> Iterator[WalkedFile]:
        """Yield the files at and below a path, level by level, in the order of their names.

        Args:
            top: absolute, without links.
            excluded: directories that are not looked into.
            skips: whether to leave a path out, relative to the top.
        """
        try:
            seen = os.lstat(top)
        except OSError:
            return
        if stat.S_ISREG(seen.st_mode):
            yield WalkedFile("", seen)
            return
        # What lies deep comes last: where there is more than is looked at, that is most often data, and no result.
        waiting = deque([""] if stat.S_ISDIR(seen.st_mode) else [])
        while waiting:
            if self._is_over():
                return
            here = waiting.popleft()
            for name, info in self._entries_of(os.path.join(top, here) if here else top, here):
                path = f"{here}/{name}" if here else name
                if skips is not None and skips(path):
                    continue
                if stat.S_ISDIR(info.st_mode):
                    if os.path.join(top, path) in excluded:
                        continue
                    if path.count("/") + 1 >= MAX_DEPTH:
                        self.is_whole = False
                    else:
                        waiting.append(path)
                elif (found := self._taken(path, info)) is not None:
                    yield found

    def _entries_of(self, directory: str, relative: str) -> list[tuple[str, os.stat_result]]:
        found = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    self._entries += 1
                    if self._is_over():
                        break
                    try:
                        found.append((entry.name, entry.stat(follow_symlinks=False)))
                    except OSError:  # It has gone.
                        continue
        except OSError:
            self.unreadable += 1
            self._note(relative)
        return sorted(found, key=lambda item: item[0])

    def _is_over(self) -> bool:
        """Whether a bound is reached: what was not looked at by then is not."""
        is_over = self._entries > MOST_ENTRIES or time.monotonic() > self._deadline
        self.is_whole = self.is_whole and not is_over
        return is_over

    def _taken(self, path: str, info: os.stat_result) -> WalkedFile | None:
        if stat.S_ISLNK(info.st_mode):
            self.links += 1
        elif not stat.S_ISREG(info.st_mode):
            self.special += 1
        elif is_unsafe(path):
            self.names += 1
        else:
            return WalkedFile(path, info)
        self._note(path)
        return None

    def _note(self, path: str) -> None:
        if len(self._examples) < MOST_EXAMPLES:
            self._examples.append(as_text(path)[:200])


def as_text(path: str) -> str:
    """Return a path as it can be sent: what is no text in it is marked."""
    return os.fsencode(path).decode("utf-8", errors="replace")
