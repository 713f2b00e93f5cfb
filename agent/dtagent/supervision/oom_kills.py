"""Whether the kernel has just killed somebody for want of memory: its own count, before a process died and after."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from pathlib import Path

WINDOW_S = 30.0
"""How long before: a launcher may end that long after the rank that was killed."""
LOOK_S = 1.0
_VMSTAT = Path("/proc/vmstat")


class OomKills:
    """Remembers the count of this boot, which counts kills by the limit of a cgroup too.

    Args:
        vmstat: the kernel's counters.
    """

    def __init__(self, vmstat: Path = _VMSTAT) -> None:
        self._vmstat = vmstat
        self._seen: deque[tuple[float, int]] = deque()
        self.look()

    def look(self) -> None:
        """Read the count, unless that was done a moment ago."""
        now = time.monotonic()
        if self._seen and now - self._seen[-1][0] < LOOK_S:
            return
        count = self._count()
        if count is not None:
            self._seen.append((now, count))
        # The newest of those before the window stays: it is what the window began with.
        while len(self._seen) > 1 and self._seen[1][0] < now - WINDOW_S:
            self._seen.popleft()

    def recent(self) -> int | None:
        """Return how many kills there were of late, up to now; `None` where that cannot be told."""
        count = self._count()
        return None if count is None or not self._seen else count - self._seen[0][1]

    def _count(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            for line in self._vmstat.read_bytes().splitlines():
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
        return None
