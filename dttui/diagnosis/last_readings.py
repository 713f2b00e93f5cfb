"""What a rank's GPU and host did in the seconds before it failed, from the samples of that node. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from dtagent.protocol.notices import Notice
from dtagent.protocol.telemetry import DiskUse, GpuSample, HostSample

from dttui.i18n import N_, _
from dttui.timestamps import elapsed_s

WINDOW_S = 30.0
LATE_S = 2.0
"""A sample may be stamped this much after the failure, and still show what was before it."""
COUNTED_S = 10.0
"""A count that was read so soon after the failure shows whether it had grown by then."""
FULL_DISK_MIB = 64
"""A file system with less room is as good as full."""


class XidKind(Enum):
    """Where to look for the reason of a critical error of a GPU."""

    PROGRAM = "program"
    HARDWARE = "hardware"
    UNKNOWN = "unknown"


_XIDS: dict[int, tuple[XidKind, str]] = {
    13: (XidKind.PROGRAM, N_("a kernel did something forbidden")),
    31: (XidKind.PROGRAM, N_("a kernel used an address that is not mapped")),
    43: (XidKind.PROGRAM, N_("the GPU stopped the program, and is well")),
    45: (XidKind.PROGRAM, N_("the program was ended, and the driver cleaned up after it")),
    48: (XidKind.HARDWARE, N_("an error of its memory that could not be corrected")),
    63: (XidKind.HARDWARE, N_("rows of its memory are to be replaced at the next reset")),
    64: (XidKind.HARDWARE, N_("rows of its memory could not be replaced")),
    74: (XidKind.HARDWARE, N_("an NVLink error")),
    79: (XidKind.HARDWARE, N_("the GPU fell off the bus")),
    92: (XidKind.HARDWARE, N_("many errors of its memory")),
    94: (XidKind.HARDWARE, N_("an error of its memory that hit this program alone")),
    95: (XidKind.HARDWARE, N_("an error of its memory that hit all programs")),
    119: (XidKind.HARDWARE, N_("its own processor (GSP) does not answer")),
    120: (XidKind.HARDWARE, N_("its own processor (GSP) failed")),
}
"""The numbers people meet, after NVIDIA's Xid catalogue."""


def xid_kind(number: int) -> tuple[XidKind, str]:
    """Return whose fault an Xid is and what it means, in the person's language."""
    kind, words = _XIDS.get(number, (XidKind.UNKNOWN, N_("see NVIDIA's Xid catalogue")))
    return kind, _(words)


@dataclass(frozen=True)
class GpuBefore:
    """One GPU over the window; the newest reading, or the extreme where the name says so."""

    index: int
    utilization_percent: int | None = None
    utilization_min_percent: int | None = None
    memory_used_mib: int | None = None
    memory_peak_mib: int | None = None
    memory_total_mib: int | None = None
    temperature_max_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    ecc_uncorrected: int | None = None
    """New ones; all there were where the first reading is unknown."""
    xid: int | None = None
    """The newest critical error, where one came in the window."""
    recovery_action: str | None = None
    recovery_action_notice: Notice | None = None
    error: str | None = None
    error_notice: Notice | None = None


@dataclass(frozen=True)
class Before:
    """The seconds before a failure."""

    samples: int
    age_s: float | None
    """How long before the failure the newest of them was taken; `None` where the time of the failure is unknown."""
    gpu: GpuBefore | None = None
    cpu_percent: float | None = None
    memory_peak_mib: int | None = None
    memory_total_mib: int | None = None
    swap_used_mib: int | None = None
    rank_cpu_percent: float | None = None
    rank_memory_first_mib: int | None = None
    rank_memory_peak_mib: int | None = None
    rank_state: str | None = None
    full_disks: tuple[str, ...] = ()
    """Mount points without room."""
    oom_kills: int | None = None
    """Processes that the kernel killed for want of memory about then; `None` where no count was read afterwards."""

    @property
    def host_memory_share(self) -> float | None:
        """The most of the host's memory that was in use."""
        if self.memory_peak_mib is None or not self.memory_total_mib:
            return None
        return self.memory_peak_mib / self.memory_total_mib


def read_before(
    readings: Sequence[HostSample], time: float | None, job_id: str, rank: int | None, gpu: int | None
) -> Before | None:
    """Return the window that ends with a failure; `None` where nothing was read in it.

    Args:
        readings: of the node, in order, their times by the clock of `time`.
        time: Unix time of the failure; `None` takes the newest readings.
        job_id: names the job's ranks in the readings.
        rank: the one that failed.
        gpu: index of its GPU; `None` where it has none.
    """
    end = time if time is not None else (readings[-1].time if readings else 0.0)
    window = _window(readings, end)
    if not window:
        return None
    last = window[-1]
    ranks = [item for sample in window for item in sample.ranks.get(job_id, []) if item.rank == rank]
    memory = [item.memory_used_mib for item in ranks if item.memory_used_mib is not None]
    full = [disk.mount for disk in last.file_systems or [] if _available_mib(disk) < FULL_DISK_MIB]
    return Before(
        samples=len(window),
        age_s=None if time is None else elapsed_s(last.time, time),
        gpu=None if gpu is None else _gpu_before(gpu, window),
        cpu_percent=last.cpu_percent,
        memory_peak_mib=max((s.memory_used_mib for s in window if s.memory_used_mib is not None), default=None),
        memory_total_mib=last.memory_total_mib,
        swap_used_mib=last.swap_used_mib,
        rank_cpu_percent=ranks[-1].cpu_percent if ranks else None,
        rank_memory_first_mib=memory[0] if memory else None,
        rank_memory_peak_mib=max(memory, default=None),
        rank_state=ranks[-1].state if ranks else None,
        full_disks=tuple(full),
        oom_kills=_oom_kills(readings, end),
    )


def _window(readings: Sequence[HostSample], end: float) -> list[HostSample]:
    """Return the readings up to the end; those from soon after it, which may show the process gone, for want of any."""
    near = [item for item in readings if end - WINDOW_S <= item.time <= end + LATE_S]
    return [item for item in near if item.time <= end] or near


def _oom_kills(readings: Sequence[HostSample], end: float) -> int | None:
    near = [item for item in readings if end - WINDOW_S <= item.time <= end + COUNTED_S]
    counts = [(item.time, item.oom_kills) for item in near if item.oom_kills is not None]
    earlier = [count for time, count in counts if time <= end]
    later = [count for time, count in counts if time > end]
    if not earlier:
        return None
    base = next((count for time, count in reversed(counts) if time <= end - LATE_S), earlier[0])
    grown = (later or earlier)[-1] - base
    return grown if later or grown else None


def _available_mib(disk: DiskUse) -> int:
    return disk.total_mib - disk.used_mib if disk.available_mib is None else disk.available_mib


def _gpu_before(index: int, window: Sequence[HostSample]) -> GpuBefore | None:
    read = [gpu for sample in window for gpu in sample.gpus if gpu.index == index]
    if not read:
        return None
    last = read[-1]
    reasons = dict.fromkeys(reason for item in read for reason in item.throttle_reasons or [])
    return GpuBefore(
        index=index,
        utilization_percent=last.utilization_percent,
        utilization_min_percent=min(
            (i.utilization_percent for i in read if i.utilization_percent is not None), default=None
        ),
        memory_used_mib=last.memory_used_mib,
        memory_peak_mib=max((i.memory_used_mib for i in read if i.memory_used_mib is not None), default=None),
        memory_total_mib=last.memory_total_mib,
        temperature_max_c=max((i.temperature_c for i in read if i.temperature_c is not None), default=None),
        power_w=last.power_w,
        power_limit_w=last.power_limit_w,
        throttle_reasons=tuple(reasons),
        ecc_uncorrected=_grown(read, "ecc_uncorrected"),
        xid=last.xid_last if _grown(read, "xid_count") else None,
        recovery_action=last.recovery_action if last.recovery_action not in (None, "none") else None,
        recovery_action_notice=last.recovery_action_notice,
        error=last.error,
        error_notice=last.error_notice,
    )


def _grown(read: Sequence[GpuSample], name: str) -> int | None:
    """Return by how much a count grew over the window; a single reading has its count alone to show."""
    counts = [value for item in read if (value := getattr(item, name)) is not None]
    if not counts:
        return None
    return int(counts[-1] - counts[0]) if len(counts) > 1 else int(counts[-1])
