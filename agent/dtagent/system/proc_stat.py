"""/proc/PID/stat, and who descends from whom by it. Standard library only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class ProcessStat(NamedTuple):
    """The fields that anybody here asks about."""

    pid: int
    parent: int
    state: str
    """One letter, `Z` for a zombie."""
    cpu_ticks: int
    """Of user and system time."""
    threads: int
    start_time: int
    """Clock ticks since boot."""
    resident_pages: int

    @property
    def is_alive(self) -> bool:
        """Whether it runs: a zombie of several threads is a process whose first thread alone has ended."""
        return self.state not in "ZX" or self.threads > 1


def read(pid: int) -> ProcessStat | None:
    """Return what the kernel says of a process; `None` where there is none.

    Raises:
        OSError: that cannot be told, as for want of file handles: it must not pass for the end of the process.
    """
    try:
        # Not open(): this runs for every process of the host, and a file object costs half as much again.
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            stat = os.read(descriptor, 4096)
        finally:
            os.close(descriptor)
        # The command name in parentheses may hold spaces and parentheses itself.
        fields = stat.rpartition(b") ")[2].split(None, 22)
        return ProcessStat(
            pid=pid,
            parent=int(fields[1]),
            state=fields[0].decode(),
            cpu_ticks=int(fields[11]) + int(fields[12]),
            threads=int(fields[17]),
            start_time=int(fields[19]),
            resident_pages=int(fields[21]),
        )
    except (FileNotFoundError, ProcessLookupError, PermissionError, IndexError, ValueError):
        return None


def read_all() -> dict[int, ProcessStat]:
    """Return every process that can be seen, by its pid. Raises OSError as `read`."""
    return {int(name): stat for name in os.listdir("/proc") if name.isdigit() and (stat := read(int(name)))}


def children_of(stats: Mapping[int, ProcessStat]) -> dict[int, list[int]]:
    """Return parent → its children."""
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, []).append(pid)
    return children


def descendants(children: Mapping[int, list[int]], roots: Iterable[int]) -> list[int]:
    """Return all below some processes, each once, without those themselves unless they are below one another."""
    found: list[int] = []
    seen: set[int] = set()
    pending = [child for pid in roots for child in children.get(pid, ())]
    while pending:
        pid = pending.pop()
        if pid not in seen:
            seen.add(pid)
            found.append(pid)
            pending.extend(children.get(pid, ()))
    return found
