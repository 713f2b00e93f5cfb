"""What a host does now: samples. Memory in MiB as NVML counts it; `None`: the source refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dtagent.protocol.metric_fields import (
    ASKED_FOR,
    BYTES_PER_S,
    CELSIUS,
    COUNT,
    FLAG,
    MHZ,
    MIB,
    PERCENT,
    WATT,
    mean,
    metric,
)
from dtagent.protocol.notices import Notice


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds memory of a GPU."""

    pid: int
    user: str | None = None
    memory_used_mib: int | None = None


@dataclass(frozen=True)
class MigInstance:
    """A part of a GPU that its administrator has cut off as a device of its own."""

    uuid: str
    """What CUDA_VISIBLE_DEVICES takes: `MIG-…`."""
    name: str | None = None
    """`NVIDIA A100-SXM4-80GB MIG 3g.40gb`."""
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None


@dataclass(frozen=True)
class GpuSample:
    """One reading of one GPU. What seldom changes (limits, error counts, MIG) may be a few seconds old."""

    index: int = field(metadata=ASKED_FOR)
    utilization_percent: int | None = metric(
        PERCENT,
        "Share of the time in which a kernel ran.",
        prometheus="gpu_utilization_ratio",
        alert="gpu.utilization",
        aggregation=mean,
        cell="",
        label="GPU utilisation",
        plot="utilisation",
    )
    """Share of the last interval in which a kernel ran."""
    memory_used_mib: int | None = metric(
        MIB,
        "Memory in use.",
        prometheus="gpu_memory_used_bytes",
        alert="gpu.memory",
        share_of="memory_total_mib",
        aggregation=sum,
        cell="",
        label="memory of all GPUs",
        plot="memory",
    )
    memory_total_mib: int | None = metric(
        MIB, "Memory of the GPU.", prometheus="gpu_memory_total_bytes", aggregation=sum
    )
    temperature_c: int | None = metric(
        CELSIUS,
        "Temperature of the chip.",
        prometheus="gpu_temperature_celsius",
        alert="gpu.temperature",
        cell="",
        label="hottest GPU (°C)",
        plot="temperature",
    )
    power_w: float | None = metric(
        WATT,
        "Power drawn.",
        prometheus="gpu_power_watts",
        alert="gpu.power",
        aggregation=sum,
        cell="",
        label="power of all GPUs (W)",
        plot="power",
    )
    power_limit_w: float | None = metric(
        WATT, "Power limit in force.", prometheus="gpu_power_limit_watts", aggregation=sum, watched=True
    )
    sm_clock_mhz: int | None = metric(
        MHZ, "Clock of the multiprocessors.", prometheus="gpu_sm_clock_hertz", aggregation=min, watched=True
    )
    throttle_reasons: list[str] | None = field(default=None, metadata=ASKED_FOR)
    """What holds it back: codes of sentences, such as `HARDWARE_SLOWDOWN`'s, whose English is their code."""
    ecc_uncorrected: int | None = metric(
        COUNT,
        "Memory errors that were not corrected, since the driver was loaded.",
        prometheus="gpu_ecc_uncorrected_errors_total",
        alert="gpu.ecc_errors",
        aggregation=sum,
    )
    """Uncorrected memory errors since the driver was loaded."""
    processes: list[GpuProcess] | None = field(default=None, metadata=ASKED_FOR)
    error: str | None = field(default=None, metadata=ASKED_FOR)
    """What the driver said where the whole GPU cannot be read: `GPU is lost`."""
    memory_utilization_percent: int | None = metric(
        PERCENT,
        "Share of the time in which memory was used.",
        prometheus="gpu_memory_utilization_ratio",
        aggregation=mean,
        watched=True,
    )
    """Share of the last interval in which memory was read or written."""
    memory_clock_mhz: int | None = metric(
        MHZ, "Clock of the memory.", prometheus="gpu_memory_clock_hertz", aggregation=min
    )
    ecc_corrected: int | None = metric(
        COUNT,
        "Memory errors that were corrected, since the driver was loaded.",
        prometheus="gpu_ecc_corrected_errors_total",
        aggregation=sum,
    )
    """Corrected memory errors since the driver was loaded."""
    memory_repair_pending: bool | None = metric(
        FLAG, "1 where memory is to be replaced.", prometheus="gpu_memory_repair_pending", watched=True
    )
    """Rows or pages of memory are to be replaced at the next reset."""
    memory_repair_failed: bool | None = metric(
        FLAG, "1 where no spare memory was left.", prometheus="gpu_memory_repair_failed", watched=True
    )
    """There was no spare row left: the GPU should be exchanged."""
    xid_count: int | None = metric(
        COUNT,
        "Critical errors the driver has reported.",
        prometheus="gpu_xid_errors_total",
        alert="gpu.xid_errors",
        aggregation=sum,
    )
    """Critical errors (Xid) the driver has reported since they are listened to."""
    xid_last: int | None = metric(
        COUNT, "Number of the newest critical error.", prometheus="gpu_xid_last", watched=True
    )
    """Number of the newest of them, as NVIDIA's Xid catalogue has it."""
    pcie_receive_bytes_per_s: int | None = metric(
        BYTES_PER_S,
        "Bytes received over PCIe.",
        prometheus="gpu_pcie_receive_bytes_per_second",
        aggregation=sum,
        watched=True,
    )
    pcie_transmit_bytes_per_s: int | None = metric(
        BYTES_PER_S,
        "Bytes sent over PCIe.",
        prometheus="gpu_pcie_transmit_bytes_per_second",
        aggregation=sum,
        watched=True,
    )
    pcie_generation: int | None = metric(
        COUNT, "Generation of the PCIe link.", prometheus="gpu_pcie_generation", aggregation=min
    )
    """Of the link as it is now, which an idle GPU may lower."""
    pcie_lanes: int | None = metric(COUNT, "Lanes of the PCIe link.", prometheus="gpu_pcie_lanes", aggregation=min)
    nvlink_receive_bytes_per_s: int | None = metric(
        BYTES_PER_S,
        "Bytes received over NVLink.",
        prometheus="gpu_nvlink_receive_bytes_per_second",
        aggregation=sum,
        watched=True,
    )
    """Payload over all links."""
    nvlink_transmit_bytes_per_s: int | None = metric(
        BYTES_PER_S,
        "Bytes sent over NVLink.",
        prometheus="gpu_nvlink_transmit_bytes_per_second",
        aggregation=sum,
        watched=True,
    )
    nvlinks_active: int | None = metric(
        COUNT, "NVLinks that are up.", prometheus="gpu_nvlinks_active", aggregation=sum, watched=True
    )
    nvlinks: int | None = metric(COUNT, "NVLinks there are.", prometheus="gpu_nvlinks", aggregation=sum, watched=True)
    """Links the GPU has; `None` where it has none."""
    recovery_action: str | None = field(default=None, metadata=ASKED_FOR)
    """What the driver wants done: `none`, `GPU reset`, `node reboot`, `drain P2P`, `drain and reset`, …, which are
    sentences of that kind too."""
    mig_enabled: bool | None = metric(
        FLAG, "1 where the GPU is cut into instances.", prometheus="gpu_mig_enabled", watched=True
    )
    mig_instances: list[MigInstance] | None = None
    error_notice: Notice | None = field(default=None, metadata=ASKED_FOR)
    recovery_action_notice: Notice | None = field(default=None, metadata=ASKED_FOR)
    """Of an action that has no name yet."""


@dataclass(frozen=True)
class RankSample:
    """One reading of one training process and its descendants."""

    rank: int = field(metadata=ASKED_FOR)
    pid: int = field(metadata=ASKED_FOR)
    cpu_percent: float | None = metric(
        PERCENT, "CPU cores a rank and its children use.", prometheus="rank_cpu_cores", aggregation=sum, watched=True
    )
    """100 is one core."""
    memory_used_mib: int | None = metric(
        MIB,
        "Resident memory of a rank and its children.",
        prometheus="rank_memory_resident_bytes",
        aggregation=sum,
        watched=True,
    )
    """Resident set."""
    threads: int | None = metric(
        COUNT, "Threads of a rank and its children.", prometheus="rank_threads", aggregation=sum, watched=True
    )
    state: str | None = field(default=None, metadata=ASKED_FOR)
    """`running`, `sleeping`, `disk-sleep`, …"""
    local_rank: int | None = field(default=None, metadata=ASKED_FOR)
    simulated_gpus: int | None = field(default=None, metadata=ASKED_FOR)
    """How many it has as its node's only rank; `None` where there are none, or several ranks with one each."""


@dataclass(frozen=True)
class DiskUse:
    """How full a local file system is; those behind a network are left out, since asking them may hang."""

    mount: str
    used_mib: int
    total_mib: int
    available_mib: int | None = None
    """For users; less than total without used, where a part is kept for root."""


@dataclass(frozen=True)
class DeviceRate:
    """What passed through a disk, a network interface or an RDMA port in the last interval."""

    name: str
    """`nvme0n1`, `eth0`, `mlx5_0/1`."""
    receive_bytes_per_s: int
    """Read, where it is a disk."""
    transmit_bytes_per_s: int
    """Written, where it is a disk."""
    errors: int | None = None
    """Errors since the host started; `None` for a disk."""
    busy_percent: float | None = None
    """Share of the interval with work in flight, of a disk."""


@dataclass(frozen=True)
class GpuHold:
    """GPUs that are set aside for somebody, whether or not anything runs on them. Times are Unix time, this host's."""

    user: str
    """Name, or number where there is none."""
    job: str | None = None
    gpus: list[int] = field(default_factory=list)
    """Indices."""
    simulated: int | None = None
    """How many simulated GPUs."""
    since: float | None = None
    until: float | None = None
    """When its user means to be done; nothing happens then."""


@dataclass(frozen=True)
class GpuWait:
    """A job that waits for GPUs of a host."""

    user: str
    job: str
    asked_at: float
    """Unix time at which its user asked, by the clock of the login node."""
    gpus: int = 0
    simulated: int | None = None
    """How many simulated GPUs."""
    stands_aside: bool = False
    """Whether it lets others by for now: another of its hosts cannot be reached."""


@dataclass(frozen=True)
class HostSample:
    """One reading of a host."""

    seq: int
    """Grows by one a sample, and by more where a daemon took over from another. A reading between two samples has that
    of the first of them."""
    time: float
    """Unix time, this host's clock."""
    cpu_percent: float | None = metric(
        PERCENT, "Share of all CPUs' time that was used.", prometheus="cpu_utilization_ratio", alert="host.cpu"
    )
    """Mean over all CPUs since the sample before, 0 to 100."""
    load1: float | None = metric(COUNT, "Load average over 1 minute.", prometheus="load1", alert="host.load")
    memory_used_mib: int | None = metric(
        MIB,
        "Memory that is not available.",
        prometheus="memory_used_bytes",
        alert="host.memory",
        share_of="memory_total_mib",
    )
    memory_total_mib: int | None = metric(MIB, "Memory of the host.", prometheus="memory_total_bytes")
    swap_used_mib: int | None = metric(MIB, "Swap in use.", prometheus="swap_used_bytes", alert="host.swap")
    disk_free_mib: int | None = metric(
        MIB, "Space for users on the file system of the agent's state.", alert="host.disk_free"
    )
    """On the file system that holds the agent's state."""
    network_receive_bytes_per_s: dict[str, float] = field(default_factory=dict, metadata=ASKED_FOR)
    network_transmit_bytes_per_s: dict[str, float] = field(default_factory=dict, metadata=ASKED_FOR)
    gpus: list[GpuSample] = field(default_factory=list)
    ranks: dict[str, list[RankSample]] = field(default_factory=dict)
    """Job id → its ranks on this host."""
    load5: float | None = metric(COUNT, "Load average over 5 minutes.", prometheus="load5")
    load15: float | None = metric(COUNT, "Load average over 15 minutes.", prometheus="load15")
    cpu_count: int | None = metric(COUNT, "Logical CPUs.", prometheus="cpus", watched=True)
    swap_total_mib: int | None = metric(MIB, "Swap there is.", prometheus="swap_total_bytes")
    core_percents: list[int] | None = None
    """Each CPU's use, 0 to 100; only while a client asks for this field by name."""
    file_systems: list[DiskUse] | None = None
    disks: list[DeviceRate] | None = None
    network_errors: dict[str, int] | None = field(default=None, metadata=ASKED_FOR)
    """Interface → errors and dropped packets since the host started."""
    rdma: list[DeviceRate] | None = field(default=None, metadata=ASKED_FOR)
    """InfiniBand and RoCE ports."""
    oom_kills: int | None = field(default=None, metadata=ASKED_FOR)
    """Processes that the kernel has killed for want of memory since the host started, in any cgroup."""
    holds: list[GpuHold] | None = field(default=None, metadata=ASKED_FOR)
    """Whose GPUs are, by what this agent has set aside and by the locks of all users; some seconds old."""
    waits: list[GpuWait] | None = field(default=None, metadata=ASKED_FOR)
    """Who waits for GPUs, the first one first; as old."""


@dataclass(frozen=True)
class TelemetrySelection:
    """The fields a client wants, by their names in the sample classes; a name the agent does not know brings `None`."""

    host: list[str] = field(default_factory=list)
    gpu: list[str] = field(default_factory=list)
    rank: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class TelemetryRequest:
    """Asks for samples after `after_seq`, waiting up to `wait_s` for one. A long poll."""

    after_seq: int | None = None
    """`None`: only the newest one."""
    wait_s: float = 10.0
    max_samples: int = 60
    interval_s: float | None = None
    """Between two samples; `None`, or less than the agent's own: all it has. With no `after_seq` a shorter one brings a
    reading that is taken for this request, and so up to ten a second for as long as a client goes on asking."""
    select: TelemetrySelection | None = None
    """Asks for `rows` in place of `samples`: a quarter of the bytes, and as little to decode."""


@dataclass(frozen=True)
class TelemetryReply:
    """Samples in order; `missed` counts those that had left the ring before they were asked for."""

    samples: list[HostSample] = field(default_factory=list)
    missed: int = 0
    rows: list[list[Any]] | None = None
    """`dtagent.protocol.columns` describes them."""
