"""What the training processes on this host use, by /proc: each rank with its descendants."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from dtagent.protocol.telemetry import RankSample

RankProcesses = Mapping[str, Mapping[int, "int | tuple[int, int | None]"]]
"""Job id → rank → its pid, or its pid and start time (clock ticks since boot, field 22 of /proc/PID/stat)."""

LOOK_S = 5.0
"""Between two looks through all processes for descendants: 10 µs a process, and a host may have thousands."""

MIB = 1024 * 1024
_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "disk-sleep",
    "T": "stopped",
    "t": "tracing-stop",
    "Z": "zombie",
    "X": "dead",
    "I": "idle",
}
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

_Key = tuple[int, int]
"""Pid and start time."""


class _Process(NamedTuple):
    """The fields of /proc/PID/stat that a rank's sample is made of."""

    pid: int
    parent: int
    state: str
    cpu_ticks: int
    threads: int
    start_time: int
    resident_pages: int

    @property
    def key(self) -> _Key:
        return self.pid, self.start_time


class RankUse:
    """Reads ranks; remembers who descends from them and the CPU time they had used."""

    def __init__(self) -> None:
        self._time: float | None = None
        self._ticks: dict[_Key, int] = {}
        self._families: dict[_Key, list[int]] = {}
        self._look_at = float("-inf")

    def read(self, wanted: RankProcesses, now: float) -> dict[str, list[RankSample]]:
        """Return a sample of each rank that lives, at monotonic time `now`."""
        if not any(wanted.values()):
            self._time, self._ticks, self._families = None, {}, {}
            return {}
        roots = {
            (job, rank): process
            for job, ranks in wanted.items()
            for rank, identity in ranks.items()
            if (process := _identified(identity)) is not None
        }
        if now >= self._look_at or not {root.key for root in roots.values()} <= self._families.keys():
            self._look_at = now + LOOK_S
            self._families = _families(list(roots.values()))
        elapsed_s = None if self._time is None else now - self._time
        before, self._time, self._ticks = self._ticks, now, {}
        samples: dict[str, list[RankSample]] = {job: [] for job in wanted}
        for (job, rank), root in sorted(roots.items()):
            samples[job].append(self._rank(rank, root, elapsed_s, before))
        return samples

    def _rank(self, rank: int, root: _Process, elapsed_s: float | None, before: dict[_Key, int]) -> RankSample:
        family = [root]
        family += [process for pid in self._families[root.key] if (process := _process(pid)) is not None]
        used = 0
        for process in family:
            self._ticks[process.key] = process.cpu_ticks
            # Of one that has just been found it is not known when it used its time.
            used += process.cpu_ticks - before.get(process.key, process.cpu_ticks)
        known = elapsed_s is not None and elapsed_s > 0 and root.key in before
        return RankSample(
            rank=rank,
            pid=root.pid,
            cpu_percent=round(100 * used / _TICKS_PER_S / elapsed_s, 1) if known and elapsed_s else None,
            memory_used_mib=sum(process.resident_pages for process in family) * _PAGE_BYTES // MIB,
            threads=sum(process.threads for process in family),
            state=_STATES.get(root.state),
        )


def _identified(identity: int | tuple[int, int | None]) -> _Process | None:
    pid, start_time = identity if isinstance(identity, tuple) else (identity, None)
    process = _process(pid)
    return process if process is not None and start_time in (None, process.start_time) else None


def _families(roots: list[_Process]) -> dict[_Key, list[int]]:
    """Return the descendants of each root, by one pass over /proc for all."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = _process(int(name))
            if process is not None:
                children.setdefault(process.parent, []).append(process.pid)
    families = {}
    for root in roots:
        family = list(children.get(root.pid, []))
        for pid in family:
            family.extend(children.get(pid, []))
        families[root.key] = family
    return families


def _process(pid: int) -> _Process | None:
    try:
        # Not open(): this runs for every process of the host, and a file object costs half as much again.
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            stat = os.read(descriptor, 4096)
        finally:
            os.close(descriptor)
        # The command name in parentheses may hold spaces and parentheses itself.
        fields = stat.rpartition(b") ")[2].split(None, 22)
        return _Process(
            pid=pid,
            parent=int(fields[1]),
            state=fields[0].decode(),
            cpu_ticks=int(fields[11]) + int(fields[12]),
            threads=int(fields[17]),
            start_time=int(fields[19]),
            resident_pages=int(fields[21]),
        )
    except (OSError, IndexError, ValueError):
        return None
