"""What the host does now, by /proc and /sys: one reading at a time, no GPUs, no threads."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from dtagent.protocol.telemetry import DeviceRate, DiskUse, GpuSample, HostSample
from dtagent.system import mounts
from dtagent.system.system_facts import or_none
from dtagent.system.units import KIB, MIB
from dtagent.telemetry.rank_use import RankProcesses, RankUse
from dtagent.telemetry.rates import DiskRates, KeptFile, NetworkRates, RdmaRates

FILE_SYSTEMS_S = 30.0
"""Between two looks at how full the file systems are."""

_LOCAL_ROOTS = {"overlay", "btrfs", "zfs"}
"""Types of file system whose source is no device, and that are local even so."""


class HostReader:
    """Reads the host; remembers the counters of the reading before, from which rates follow.

    Args:
        directory: the file system whose free space is told.
        clock: monotonic seconds.
        proc: where /proc is.
        sys: where /sys is.
    """

    def __init__(
        self,
        directory: Path,
        clock: Callable[[], float] = time.monotonic,
        proc: Path = Path("/proc"),
        sys: Path = Path("/sys"),
    ) -> None:
        self._directory = str(directory)
        self._clock = clock
        self._proc = proc
        self._stat = or_none(lambda: KeptFile(proc / "stat"))
        self._memory = or_none(lambda: KeptFile(proc / "meminfo"))
        self._events = or_none(lambda: KeptFile(proc / "vmstat"))
        self._network = or_none(lambda: NetworkRates(proc))
        self._disks = or_none(lambda: DiskRates(proc, sys))
        self._rdma = RdmaRates(sys)
        self._ranks = RankUse()
        self._cpu: list[tuple[int, int]] = []
        self._cores: list[tuple[int, int]] = []
        self._file_systems: list[DiskUse] | None = None
        self._file_systems_until = float("-inf")

    def sample(
        self, seq: int, processes: RankProcesses, gpus: list[GpuSample], *, with_cores: bool = False
    ) -> HostSample:
        """Return one reading. What cannot be read is `None`, rates are absent from the first reading.

        Args:
            seq: the sample's number.
            processes: whose use is told; one that is gone is left out.
            gpus: the GPUs' readings that go into the sample.
            with_cores: whether each CPU's use is told.
        """
        now = self._clock()
        cpu_percent, cpu_count, cores = or_none(lambda: self._cpu_use(with_cores)) or (None, None, None)
        memory = or_none(self._memory_mib) or {}
        free = or_none(lambda: os.statvfs(self._directory))
        load = or_none(os.getloadavg) or (None, None, None)
        receive, transmit, errors = or_none(lambda: self._network and self._network.read(now)) or ({}, {}, None)
        total, available = memory.get("MemTotal"), memory.get("MemAvailable")
        swap, swap_free = memory.get("SwapTotal"), memory.get("SwapFree")
        return HostSample(
            seq=seq,
            time=round(time.time(), 3),
            cpu_percent=cpu_percent,
            cpu_count=cpu_count,
            core_percents=cores,
            load1=load[0],
            load5=load[1],
            load15=load[2],
            memory_used_mib=None if total is None or available is None else total - available,
            memory_total_mib=total,
            swap_used_mib=None if swap is None or swap_free is None else swap - swap_free,
            swap_total_mib=swap,
            disk_free_mib=None if free is None else free.f_bavail * free.f_frsize // MIB,
            file_systems=self._space(now),
            disks=self._rated(self._disks, now),
            network_receive_bytes_per_s=dict(receive),
            network_transmit_bytes_per_s=dict(transmit),
            network_errors=errors,
            rdma=self._rated(self._rdma, now) or None,
            oom_kills=or_none(lambda: self._events_since_start(b"oom_kill")),
            gpus=gpus,
            ranks=self._ranks.read(processes, now),
        )

    def _cpu_use(self, with_cores: bool) -> tuple[float | None, int | None, list[int] | None]:
        if self._stat is None:
            return None, None, None
        text = self._stat.read()
        # After the CPUs come the interrupts, one long line.
        lines = text[: text.find(b"intr")].splitlines()
        before, self._cpu = self._cpu, [_busy_and_total(lines[0])]
        used = _shares(before, self._cpu)
        cores = None
        if with_cores:
            earlier, self._cores = self._cores, [_busy_and_total(line) for line in lines[1:]]
            cores = [round(share) for share in _shares(earlier, self._cores)] or None
        else:
            self._cores = []
        return (used[0] if used else None), len(lines) - 1, cores

    def _memory_mib(self) -> dict[str, int]:
        if self._memory is None:
            return {}
        wanted = (b"MemTotal", b"MemAvailable", b"SwapTotal", b"SwapFree")
        found = {}
        for line in self._memory.read().split(b"\n", 20):
            name, _, value = line.partition(b":")
            if name in wanted:
                found[name.decode()] = int(value.split()[0]) // (MIB // KIB)
        return found

    def _events_since_start(self, name: bytes) -> int | None:
        if self._events is None:
            return None
        _before, found, rest = (b"\n" + self._events.read()).partition(b"\n%s " % name)
        return int(rest.partition(b"\n")[0]) if found else None

    def _rated(self, devices: DiskRates | RdmaRates | None, now: float) -> list[DeviceRate] | None:
        return None if devices is None else or_none(lambda: devices.read(now))

    def _space(self, now: float) -> list[DiskUse] | None:
        if now >= self._file_systems_until:
            self._file_systems_until = now + FILE_SYSTEMS_S
            self._file_systems = or_none(lambda: _file_systems(self._proc))
        return self._file_systems


def _busy_and_total(line: bytes) -> tuple[int, int]:
    """Return the ticks of a `cpu` line: user, nice, system, idle, iowait, irq, softirq, steal, guest and its nice."""
    # Guest time is counted in user and nice already.
    ticks = [int(field) for field in line.split()[1:9]]
    total = sum(ticks)
    return total - ticks[3] - ticks[4], total


def _shares(before: list[tuple[int, int]], now: list[tuple[int, int]]) -> list[float]:
    """Return the busy percentages since before; empty where the CPUs are not the same or no time has passed."""
    if len(before) != len(now) or any(total <= earlier for (_, total), (_, earlier) in zip(now, before, strict=True)):
        return []
    shares = [(busy - old_busy) / (total - old) for (busy, total), (old_busy, old) in zip(now, before, strict=True)]
    return [round(100 * min(1.0, max(0.0, share)), 1) for share in shares]


def _file_systems(proc: Path) -> list[DiskUse]:
    found: dict[str, DiskUse] = {}
    for mount in mounts.read(proc / "self/mountinfo"):
        is_local = mount.source.startswith("/dev/") and not mount.source.startswith("/dev/loop")
        is_local = is_local or (mount.point == "/" and mount.kind in _LOCAL_ROOTS)
        # A device may be mounted more than once: containers bind single files of it.
        if is_local and mount.device not in found and os.path.isdir(mount.point):
            with contextlib.suppress(OSError):
                space = os.statvfs(mount.point)
                total = space.f_blocks * space.f_frsize // MIB
                used = total - space.f_bfree * space.f_frsize // MIB
                if total:
                    available = space.f_bavail * space.f_frsize // MIB
                    found[mount.device] = DiskUse(mount.shown, used, total, available)
    return sorted(found.values(), key=lambda item: item.mount)
