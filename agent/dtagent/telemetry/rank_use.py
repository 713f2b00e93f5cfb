"""What the training processes on this host use, by /proc: each rank with its descendants."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from dtagent.protocol.telemetry import RankSample
from dtagent.system import proc_stat
from dtagent.system.proc_stat import ProcessStat
from dtagent.system.system_facts import or_none
from dtagent.system.units import MIB


class RankProcess(NamedTuple):
    """The process of a rank."""

    pid: int
    start_time: int | None = None
    """Clock ticks since boot; `None` where that is not known."""
    local_rank: int | None = None
    simulated_gpus: int | None = None
    """How many it has as its node's only rank; `None` where there are none, or several ranks with one each."""


RankProcesses = Mapping[str, Mapping[int, RankProcess]]
"""Job id → rank → its process."""

LOOK_S = 5.0
"""Between two looks through all processes for descendants: 10 µs a process, and a host may have thousands."""

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
            for rank, known in ranks.items()
            if (process := _identified(known)) is not None
        }
        if now >= self._look_at or not {_key(root) for root in roots.values()} <= self._families.keys():
            self._look_at = now + LOOK_S
            self._families = _families(list(roots.values()))
        elapsed_s = None if self._time is None else now - self._time
        before, self._time, self._ticks = self._ticks, now, {}
        samples: dict[str, list[RankSample]] = {job: [] for job in wanted}
        for (job, rank), root in sorted(roots.items()):
            samples[job].append(self._rank(rank, wanted[job][rank], root, elapsed_s, before))
        return samples

    def _rank(
        self,
        rank: int,
        known_as: RankProcess,
        root: ProcessStat,
        elapsed_s: float | None,
        before: dict[_Key, int],
    ) -> RankSample:
        family = [root]
        family += [process for pid in self._families[_key(root)] if (process := _process(pid)) is not None]
        used = 0
        for process in family:
            self._ticks[_key(process)] = process.cpu_ticks
            # Of one that has just been found it is not known when it used its time.
            used += process.cpu_ticks - before.get(_key(process), process.cpu_ticks)
        known = elapsed_s is not None and elapsed_s > 0 and _key(root) in before
        return RankSample(
            rank=rank,
            pid=root.pid,
            cpu_percent=round(100 * used / _TICKS_PER_S / elapsed_s, 1) if known and elapsed_s else None,
            memory_used_mib=sum(process.resident_pages for process in family) * _PAGE_BYTES // MIB,
            threads=sum(process.threads for process in family),
            state=_STATES.get(root.state),
            local_rank=known_as.local_rank,
            simulated_gpus=known_as.simulated_gpus,
        )


def _process(pid: int) -> ProcessStat | None:
    return or_none(lambda: proc_stat.read(pid))


def _identified(known: RankProcess) -> ProcessStat | None:
    process = _process(known.pid)
    return process if process is not None and known.start_time in (None, process.start_time) else None


def _families(roots: list[ProcessStat]) -> dict[_Key, list[int]]:
    """Return the descendants of each root, by one pass over /proc for all."""
    children = proc_stat.children_of(or_none(proc_stat.read_all) or {})
    return {_key(root): proc_stat.descendants(children, [root.pid]) for root in roots}


def _key(process: ProcessStat) -> _Key:
    return process.pid, process.start_time
