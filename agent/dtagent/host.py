"""What the host does now, by psutil, and what each rank uses, by /proc: one reading at a time, no GPUs, no threads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import psutil

from dtagent.protocol.telemetry import GpuSample, HostSample, RankSample

MIB = 1024 * 1024

RankProcesses = Mapping[str, Mapping[int, "int | tuple[int, int | None]"]]
"""Job id → rank → its pid, or its pid and start time (clock ticks since boot, field 22 of /proc/PID/stat)."""

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

_Value = TypeVar("_Value")


class _Process(NamedTuple):
    """The fields of /proc/PID/stat that a rank's sample is made of."""

    pid: int
    parent: int
    state: str
    cpu_ticks: int
    threads: int
    start_time: int
    resident_pages: int


class HostProbe:
    """Reads the host; remembers the counters of the reading before, from which rates follow.

    Args:
        directory: the file system whose free space is told.
        clock: monotonic seconds.
    """

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._clock = clock
        self._cpu: tuple[float, float] | None = None
        self._network: tuple[float, dict[str, tuple[int, int]]] | None = None
        self._rank_time: float | None = None
        self._rank_ticks: dict[tuple[int, int], int] = {}

    def sample(self, seq: int, processes: RankProcesses, gpus: list[GpuSample]) -> HostSample:
        """Return one reading. What cannot be read is `None`, rates are absent from the first reading.

        Args:
            seq: the sample's number.
            processes: whose use is told; one that is gone is left out.
            gpus: the GPUs' readings that go into the sample.
        """
        memory = _or_none(psutil.virtual_memory)
        swap = _or_none(psutil.swap_memory)
        disk = _or_none(lambda: psutil.disk_usage(str(self._directory)))
        receive, transmit = self._network_rates()
        return HostSample(
            seq=seq,
            time=time.time(),
            cpu_percent=_or_none(self._cpu_percent),
            load1=_or_none(lambda: os.getloadavg()[0]),
            memory_used_mib=None if memory is None else (memory.total - memory.available) // MIB,
            memory_total_mib=None if memory is None else memory.total // MIB,
            swap_used_mib=None if swap is None else swap.used // MIB,
            disk_free_mib=None if disk is None else disk.free // MIB,
            network_receive_bytes_per_s=receive,
            network_transmit_bytes_per_s=transmit,
            gpus=gpus,
            ranks=self._ranks(processes),
        )

    def _cpu_percent(self) -> float | None:
        # psutil.cpu_percent keeps the time before per thread and answers 0 at first; here unknown stays unknown.
        times = psutil.cpu_times()
        # Linux counts guest time in user and nice already.
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        idle = times.idle + getattr(times, "iowait", 0.0)
        before, self._cpu = self._cpu, (total, idle)
        if before is None or total <= before[0]:
            return None
        busy = 1 - (idle - before[1]) / (total - before[0])
        return round(100 * min(1.0, max(0.0, busy)), 1)

    def _network_rates(self) -> tuple[dict[str, float], dict[str, float]]:
        # nowrap=False: psutil's own correction of wrapped counters remembers every interface there ever was.
        counters = _or_none(lambda: psutil.net_io_counters(pernic=True, nowrap=False)) or {}
        now = self._clock()
        current = {name: (io.bytes_recv, io.bytes_sent) for name, io in counters.items() if name != "lo"}
        before, self._network = self._network, (now, current)
        receive: dict[str, float] = {}
        transmit: dict[str, float] = {}
        if before is None or now <= before[0]:
            return receive, transmit
        elapsed_s = now - before[0]
        for name, (received, sent) in current.items():
            received_before, sent_before = before[1].get(name, (received, sent))
            # Smaller than before: the interface was made anew, so this interval says nothing.
            if name in before[1] and received >= received_before and sent >= sent_before:
                receive[name] = round((received - received_before) / elapsed_s, 1)
                transmit[name] = round((sent - sent_before) / elapsed_s, 1)
        return receive, transmit

    def _ranks(self, wanted: RankProcesses) -> dict[str, list[RankSample]]:
        if not any(wanted.values()):
            self._rank_time, self._rank_ticks = None, {}
            return {}
        # One pass over /proc serves all ranks. psutil's children(recursive=True) makes such a pass for each rank,
        # and four more reads a process afterwards.
        processes = _processes()
        children: dict[int, list[_Process]] = {}
        for process in processes.values():
            children.setdefault(process.parent, []).append(process)
        now = self._clock()
        elapsed_s = None if self._rank_time is None else now - self._rank_time
        ticks_before, self._rank_time, self._rank_ticks = self._rank_ticks, now, {}
        samples: dict[str, list[RankSample]] = {}
        for job_id, ranks in wanted.items():
            found = []
            for rank, identity in sorted(ranks.items()):
                pid, start_time = identity if isinstance(identity, tuple) else (identity, None)
                root = processes.get(pid)
                if root is not None and start_time in (None, root.start_time):
                    found.append(self._rank(rank, root, children, elapsed_s, ticks_before))
            samples[job_id] = found
        return samples

    def _rank(
        self,
        rank: int,
        root: _Process,
        children: dict[int, list[_Process]],
        elapsed_s: float | None,
        ticks_before: dict[tuple[int, int], int],
    ) -> RankSample:
        family = _family(root, children)
        # A child that has come since used all its time in this interval; the rank itself must have been seen before.
        known = elapsed_s is not None and elapsed_s > 0 and (root.pid, root.start_time) in ticks_before
        used = 0
        for process in family:
            key = (process.pid, process.start_time)
            self._rank_ticks[key] = process.cpu_ticks
            used += process.cpu_ticks - ticks_before.get(key, 0)
        return RankSample(
            rank=rank,
            pid=root.pid,
            cpu_percent=round(100 * used / _TICKS_PER_S / elapsed_s, 1) if known and elapsed_s else None,
            memory_used_mib=sum(process.resident_pages for process in family) * _PAGE_BYTES // MIB,
            threads=sum(process.threads for process in family),
            state=_STATES.get(root.state),
        )


def _or_none(read: Callable[[], _Value]) -> _Value | None:
    try:
        return read()
    # RuntimeError and ValueError: psutil on a /proc that lacks what it looks for, as in some sandboxes.
    except (OSError, psutil.Error, RuntimeError, ValueError):
        return None


def _family(root: _Process, children: dict[int, list[_Process]]) -> list[_Process]:
    family = [root]
    for process in family:
        family.extend(children.get(process.pid, []))
    return family


def _processes() -> dict[int, _Process]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = _process(int(name))
            if process is not None:
                found[process.pid] = process
    return found


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
