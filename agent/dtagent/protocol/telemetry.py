"""What a host is (facts) and does now (samples). Memory in MiB as NVML counts it; `None`: the source refused."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class GpuFacts:
    """One NVIDIA GPU."""

    index: int
    name: str
    uuid: str | None = None
    memory_total_mib: int | None = None


@dataclass(frozen=True)
class PythonFacts:
    """An interpreter jobs may run under; versions come from package metadata, nothing is imported."""

    path: str
    """As asked for."""
    executable: str | None = None
    version: str | None = None
    packages: dict[str, str] = field(default_factory=dict)
    """Distribution name → version, of those that matter to training: torch, deepspeed, …"""
    error: str | None = None
    """Why it cannot be used."""


@dataclass(frozen=True)
class HostFacts:
    """What a host is. Changes only with a reboot or an installation."""

    hostname: str
    user: str
    os: str
    kernel: str
    architecture: str
    boot_id: str
    booted_at: float
    """Unix time."""
    cpu_model: str
    cpu_count: int
    """Logical CPUs this user may run on."""
    memory_total_mib: int
    gpus: list[GpuFacts] = field(default_factory=list)
    driver_version: str | None = None
    gpu_note: str | None = None
    """Why there are no GPUs to show, or not all: no driver, a driver that fails, a GPU that is lost."""
    addresses: dict[str, list[str]] = field(default_factory=dict)
    """Interface → IP addresses."""
    pythons: list[PythonFacts] = field(default_factory=list)


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds memory of a GPU."""

    pid: int
    user: str | None = None
    memory_used_mib: int | None = None


@dataclass(frozen=True)
class GpuSample:
    """One reading of one GPU."""

    index: int
    utilization_percent: int | None = None
    """Share of the last interval in which a kernel ran."""
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None
    throttle_reasons: list[str] | None = None
    ecc_uncorrected: int | None = None
    """Uncorrected memory errors since the driver was loaded."""
    processes: list[GpuProcess] | None = None
    error: str | None = None
    """What the driver said where the whole GPU cannot be read: `GPU is lost`."""


@dataclass(frozen=True)
class RankSample:
    """One reading of one training process and its children."""

    rank: int
    pid: int
    cpu_percent: float | None = None
    """100 is one core."""
    memory_used_mib: int | None = None
    """Resident set."""
    threads: int | None = None
    state: str | None = None
    """`running`, `sleeping`, `disk-sleep`, …"""
    local_rank: int | None = None


@dataclass(frozen=True)
class HostSample:
    """One reading of a host."""

    seq: int
    """Counts up by one a sample while the daemon lives."""
    time: float
    """Unix time, this host's clock."""
    cpu_percent: float | None = None
    """Mean over all CPUs since the sample before, 0 to 100."""
    load1: float | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    swap_used_mib: int | None = None
    disk_free_mib: int | None = None
    """On the file system that holds the agent's state."""
    network_receive_bytes_per_s: dict[str, float] = field(default_factory=dict)
    network_transmit_bytes_per_s: dict[str, float] = field(default_factory=dict)
    gpus: list[GpuSample] = field(default_factory=list)
    ranks: dict[str, list[RankSample]] = field(default_factory=dict)
    """Job id → its ranks on this host."""


@dataclass(frozen=True)
class TelemetryRequest:
    """Asks for samples after `after_seq`, waiting up to `wait_s` for one. A long poll."""

    after_seq: int | None = None
    """`None`: only the newest one."""
    wait_s: float = 10.0
    max_samples: int = 60


@dataclass(frozen=True)
class TelemetryReply:
    """Samples in order; `missed` counts those that had left the ring before they were asked for."""

    samples: list[HostSample] = field(default_factory=list)
    missed: int = 0


@dataclass(frozen=True)
class FactsRequest:
    """Asks what a host is, and about these interpreters on it."""

    pythons: list[str] = field(default_factory=list)
