"""Whether the kernel has just killed somebody for want of memory: its own counts, before a process died and after."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

WINDOW_S = 30.0
"""How long before: a launcher may end that long after the rank that was killed."""
LOOK_S = 1.0
_VMSTAT = Path("/proc/vmstat")
_KILLS = (("memory.events", "oom_kill"), ("memory.oom_control", "oom_kill"))
_LIMITS = (("memory.events", "oom"), ("memory.failcnt", ""))
"""File and name of a cgroup's counter, of version 2 and of version 1."""


@dataclass(frozen=True)
class _Counts:
    host: int | None
    """Kills on the whole host, those by the limit of a cgroup too."""
    group: int | None
    """Kills in the cgroups."""
    limits: int | None
    """How often one of the cgroups could not have what it wanted, for its own limit."""


class OomKills:
    """Remembers the counts of this boot.

    Args:
        groups: directories of the cgroups that the processes are in, of either version.
        vmstat: the kernel's counters of the host.
    """

    def __init__(self, groups: Sequence[Path] = (), vmstat: Path = _VMSTAT) -> None:
        self._groups = groups
        self._vmstat = vmstat
        self._seen: deque[tuple[float, _Counts]] = deque()
        self.look()

    def look(self) -> None:
        """Read the counts, unless that was done a moment ago."""
        now = time.monotonic()
        if self._seen and now - self._seen[-1][0] < LOOK_S:
            return
        self._seen.append((now, self._counts()))
        # The newest of those before the window stays: it is what the window began with.
        while len(self._seen) > 1 and self._seen[1][0] < now - WINDOW_S:
            self._seen.popleft()

    def recent(self) -> dict[str, object]:
        """Return what there was of late, up to now, as fields of a `ProcessExit`; what cannot be told is `None`."""
        before, now = self._seen[0][1], self._counts()
        killed, reached = _rise(before.group, now.group), _rise(before.limits, now.limits)
        return {
            "oom_kills": _rise(before.host, now.host),
            "at_memory_limit": None if killed is None or reached is None else killed > 0 and reached > 0,
        }

    def _counts(self) -> _Counts:
        # Of version 2, a cgroup counts what happens below it too; of version 1, only itself: any rise counts.
        kills = [_read(path / name, key) for path in self._groups for name, key in _KILLS]
        limits = [_read(path / name, key) for path in self._groups for name, key in _LIMITS]
        return _Counts(_read(self._vmstat, "oom_kill"), _sum(kills), _sum(limits))


def _read(path: Path, key: str) -> int | None:
    """Return the number of a line `key number`; without a key, the only number there is."""
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            name, _blank, number = line.rpartition(" ")
            if name == key:
                return int(number)
    return None


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _rise(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else now - before
