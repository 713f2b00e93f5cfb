"""What a host is. Memory in MiB as NVML counts it; `None`: the source refused."""

from __future__ import annotations

from dataclasses import dataclass, field

from dtagent.protocol.notices import Notice
from dtagent.protocol.rdma import RdmaPort

PACKAGES = (
    "torch",
    "torchvision",
    "torchtitan",
    "numpy",
    "deepspeed",
    "megatron-core",
    "transformer-engine",
    "flash-attn",
    "apex",
    "horovod",
    "tensorflow",
    "tf-keras",
    "keras",
    "jax",
    "accelerate",
    "transformers",
    "datasets",
    "lightning",
    "pytorch-lightning",
    "triton",
    "mpi4py",
    "nvidia-nccl-cu11",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "nvidia-cuda-runtime-cu12",
    "nvidia-cuda-runtime",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
)
"""Distributions that are always looked for, since their presence and version matter to a job."""
MOST_PACKAGES = 32
"""Further ones that may be asked about."""
MOST_MODULES = 128
"""Modules that may be asked about."""


@dataclass(frozen=True)
class GpuFacts:
    """One NVIDIA GPU."""

    index: int
    name: str
    uuid: str | None = None
    memory_total_mib: int | None = None
    pci_address: str | None = None
    """`0000:17:00.0`."""
    numa_node: int | None = None
    """The one whose memory and CPUs are nearest."""
    cpus: str | None = None
    """The nearest CPUs, `0-31,64-95`."""
    compute_capability: str | None = None
    """`9.0`."""
    mig_enabled: bool | None = None
    paths: list[str] | None = None
    """How each GPU of the host is reached, by index, in the terms of `nvidia-smi topo`: `X` itself, `NV4` over four
    NVLinks, `PIX` over one PCIe bridge, `PXB` over several, `PHB` a host bridge, `NODE` one NUMA node, `SYS` beyond."""


@dataclass(frozen=True)
class NumaNode:
    """A part of the host whose CPUs share their memory controllers."""

    index: int
    cpus: str
    """`0-31,64-95`."""
    memory_total_mib: int | None = None


@dataclass(frozen=True)
class FileSystem:
    """A mounted file system that holds files of people or jobs."""

    mount: str
    kind: str
    """As the kernel names it: `ext4`, `nfs4`, `lustre`."""
    is_network: bool
    total_mib: int | None = None
    """`None` behind a network, where asking may hang."""
    free_mib: int | None = None
    is_read_only: bool = False


@dataclass(frozen=True)
class Interface:
    """A network interface."""

    name: str
    is_up: bool
    addresses: list[str] = field(default_factory=list)
    """All of them, also those that other hosts cannot reach."""
    speed_mbit_s: int | None = None
    mtu: int | None = None
    numa_node: int | None = None
    is_virtual: bool = False
    """No device of its own: a bridge, a bond, a container's end of a pair."""


@dataclass(frozen=True)
class UserLimits:
    """What this user's processes may have here; `None` where there is no limit."""

    open_files: int | None = None
    locked_memory_kib: int | None = None
    """RDMA and pinned memory need much."""
    processes: int | None = None


@dataclass(frozen=True)
class ContainerFacts:
    """The container this host is, as far as it can be told from inside; cgroup limits hold outside of one too."""

    kind: str | None = None
    """`docker`, `podman`, `kubernetes`, `lxc`, …; `None` where only limits are known."""
    cpu_limit: float | None = None
    """CPUs' worth of time it may use."""
    memory_limit_mib: int | None = None


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
    torch_cuda: str | None = None
    """CUDA that torch was built for; `None` also for a CPU build."""
    torch_rocm: str | None = None
    torch_git: str | None = None
    """Commit that torch was built from."""
    nccl: str | None = None
    editable: list[str] | None = None
    """Of the packages, those installed from a directory that may change at any time."""
    environment: str | None = None
    """`conda`, `venv`, or `None` for a plain installation."""
    prefix: list[str] | None = None
    """Words it was started behind; `None` where it was asked by itself."""
    looked_for: list[str] | None = None
    """Distributions that were looked for besides `PACKAGES`."""
    error_notice: Notice | None = None
    modules: dict[str, str] | None = None
    """Module that was asked for and is found → version of what brings it, empty where that is not known; `None` where
    none was looked for."""
    missing_modules: list[str] | None = None
    """Those that were asked for and are not found."""


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
    cpu_sockets: int | None = None
    cpu_cores: int | None = None
    """Physical ones of the whole host."""
    numa_nodes: list[NumaNode] | None = None
    swap_total_mib: int | None = None
    shm_total_mib: int | None = None
    """Size of /dev/shm, through which data loaders and NCCL pass memory; 64 in a container where nobody said more."""
    shm_free_mib: int | None = None
    file_systems: list[FileSystem] | None = None
    interfaces: list[Interface] | None = None
    rdma: list[RdmaPort] | None = None
    limits: UserLimits | None = None
    container: ContainerFacts | None = None
    """`None` where there is neither container nor limit."""
    cuda_version: str | None = None
    """The newest CUDA that the driver runs."""
    cuda_toolkits: dict[str, str] | None = None
    """Directory → version of the CUDA toolkits installed."""
    time: float | None = None
    """Unix time, this host's clock."""
    time_zone: str | None = None
    clock_synchronized: bool | None = None
    """Whether the kernel says that something keeps the clock right."""
    logout_kills: bool = False
    """Whether a job that is started here now would be killed when the login session that brought the agent ends."""
    gpu_note_notice: Notice | None = None


@dataclass(frozen=True)
class FactsRequest:
    """Asks what a host is, and about these interpreters on it."""

    pythons: list[str] = field(default_factory=list)
    prefix: list[str] = field(default_factory=list)
    """Words to start them behind, as the job will: `conda run -n train` may lead to another interpreter."""
    env: dict[str, str] = field(default_factory=dict)
    """Variables to start them with, where they are behind something."""
    cwd: str = "/"
    """Where to start them then, if it is there."""
    packages: list[str] = field(default_factory=list)
    """Distributions to look for besides `PACKAGES`, such as a framework that an installed package adds requires."""
    modules: dict[str, list[str]] = field(default_factory=dict)
    """Modules of the first level to look for, each with distributions that may bring it; none is imported."""
    module_path: list[str] = field(default_factory=list)
    """Directories where the job has them looked for besides, as its PYTHONPATH does."""
