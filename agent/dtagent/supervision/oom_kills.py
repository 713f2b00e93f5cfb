"""Whether the kernel has just killed somebody for want of memory: its own counts, before a process died and after."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dtagent.system import cgroup, processes

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
    own: int | None
    """Kills in the innermost of them."""


class OomKills:
    """Remembers the counts of this boot.

    Args:
        groups: directories of the cgroups that the processes are in, of either version.
        vmstat: the kernel's counters of the host.
        own: those that they are in themselves, beside those above; none where some are an engine's, and elsewhere.
    """

    def __init__(self, groups: Sequence[Path] = (), vmstat: Path = _VMSTAT, own: Sequence[Path] = ()) -> None:
        self._groups = groups
        self._own = own
        self._vmstat = vmstat
        self._is_inside: dict[str, bool] = {}
        """What the kernel says of a process's cgroups → whether those are its own ones here."""
        self._stays: dict[int, bool] = {}
        """Process that was seen in them → whether at two looks: who has just begun may yet go elsewhere."""
        self._seen: deque[tuple[float, _Counts]] = deque()
        self.look()

    def look(self, pids: Iterable[int] = ()) -> None:
        """Read the counts, unless that was done a moment ago.

        Args:
            pids: processes that may have gone, or been put, to cgroups elsewhere (`systemd-run --scope`).
        """
        now = time.monotonic()
        if self._seen and now - self._seen[-1][0] < LOOK_S:
            return
        for pid in pids:
            if self._is_here(pid):
                self._stays[pid] = pid in self._stays
            else:
                self._own = ()
        self._seen.append((now, self._counts()))
        # The newest of those before the window stays: it is what the window began with.
        while len(self._seen) > 1 and self._seen[1][0] < now - WINDOW_S:
            self._seen.popleft()

    def recent(self, pid: int | None = None) -> dict[str, object]:
        """Return what there was of late, up to now, as fields of a `ProcessExit`; what cannot be told is `None`.

        Args:
            pid: the process that has ended; `None` where it was started by another one.
        """
        before, now = self._seen[0][1], self._counts()
        killed, reached = _rise(before.group, now.group), _rise(before.limits, now.limits)
        own = _rise(before.own, now.own)
        has_stayed = pid is not None and self._stays.get(pid, False)
        return {
            "oom_kills": _rise(before.host, now.host),
            "at_memory_limit": None if killed is None or reached is None else killed > 0 and reached > 0,
            "is_oom_killed_here": own > 0 if own is not None and (own > 0 or has_stayed) else None,
        }

    def _is_here(self, pid: int) -> bool:
        listed = Path(f"/proc/{pid}/cgroup")
        try:
            told = listed.read_text()
            if told not in self._is_inside:
                self._is_inside[told] = {*cgroup.memory_directories(listed, and_above=False)} <= {*self._own}
            # Of one that has ended the kernel says the topmost cgroup.
            return self._is_inside[told] or processes.identify(pid) is None
        except OSError:
            return True

    def _counts(self) -> _Counts:
        # Of version 2, a cgroup counts what happens below it too; of version 1, only itself: any rise counts.
        kills = _read_all(self._groups, _KILLS)
        limits = _read_all(self._groups, _LIMITS)
        return _Counts(_read(self._vmstat, "oom_kill"), kills, limits, _read_all(self._own, _KILLS))


def _read(path: Path, key: str) -> int | None:
    """Return the number of a line `key number`; without a key, the only number there is."""
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            name, _blank, number = line.rpartition(" ")
            if name == key:
                return int(number)
    return None


def _read_all(groups: Sequence[Path], counters: Sequence[tuple[str, str]]) -> int | None:
    counts = [_read(path / name, key) for path in groups for name, key in counters]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _rise(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else now - before
