"""What an attempt has used on this host: CPU time of what it waited for, and the most memory it held at a time."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from pathlib import Path
from typing import Any, Protocol

from dtagent.supervision.family import Family
from dtagent.system.processes import ProcessId
from dtagent.system.units import MIB

FIRST_SAMPLE_S = 1.0
LONGEST_PAUSE_S = 16.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class MemoryPeak:
    """The most memory of a family: by the kernel's count for its cgroup, else by looks at it ever less often."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self._counted = family.cgroup is not None and family.cgroup.peak_memory_bytes() is not None
        self._seen_bytes = 0
        self._pause_s = FIRST_SAMPLE_S
        self._next = time.monotonic() + self._pause_s

    def wait_s(self) -> float | None:
        """Return how long until the next look; `None` where the kernel counts."""
        return None if self._counted else max(0.0, self._next - time.monotonic())

    def look(self) -> None:
        """Look if it is time to."""
        if self._counted or time.monotonic() < self._next:
            return
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._next = time.monotonic() + self._pause_s
        with contextlib.suppress(OSError):  # No file handles at the moment: not worth a job's life.
            self._seen_bytes = max(self._seen_bytes, resident_bytes(self.family.scan()))

    def mib(self) -> int:
        """Return the peak in MiB: never less than the largest process that was waited for."""
        kernel = self.family.cgroup.peak_memory_bytes() if self.family.cgroup else None
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        return max(kernel or 0, self._seen_bytes, largest) // MIB


def resident_bytes(found: list[ProcessId]) -> int:
    """Return the memory of processes: what each has of its own, and once the most that one shares with others."""
    own = shared = 0
    for process in found:
        try:
            _, resident_pages, shared_pages, *_ = map(int, Path(f"/proc/{process.pid}/statm").read_text().split())
        except (OSError, ValueError):
            continue
        own += resident_pages - shared_pages
        shared = max(shared, shared_pages)
    return (own + shared) * _PAGE_BYTES


class Exit(Protocol):
    """What one process, and those that it waited for, have used: as `resource.struct_rusage` tells it."""

    @property
    def ru_utime(self) -> float:
        """Seconds."""

    @property
    def ru_stime(self) -> float:
        """Seconds."""

    @property
    def ru_maxrss(self) -> int:
        """KiB, of the largest."""


def of_exit(used: Exit) -> dict[str, Any]:
    """Return what the journal keeps of one process and of those that it waited for."""
    return {
        "user_cpu_s": round(used.ru_utime, 3),
        "system_cpu_s": round(used.ru_stime, 3),
        "peak_memory_mib": used.ru_maxrss // 1024,
    }


def of_all(peak: MemoryPeak, below: Exit | None = None) -> dict[str, Any]:
    """Return what the journal keeps of all processes that have ended.

    Args:
        peak: of their memory.
        below: of those that another process waited for.
    """
    own = of_exit(resource.getrusage(resource.RUSAGE_CHILDREN))
    if below is None:
        return {**own, "peak_memory_mib": peak.mib()}
    return {
        "user_cpu_s": round(own["user_cpu_s"] + below.ru_utime, 3),
        "system_cpu_s": round(own["system_cpu_s"] + below.ru_stime, 3),
        "peak_memory_mib": max(peak.mib(), below.ru_maxrss // 1024),
    }
