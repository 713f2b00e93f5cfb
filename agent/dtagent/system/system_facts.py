"""What the kernel tells of a host in /proc and /sys: CPUs, NUMA, network, RDMA, limits. Each reader stands alone."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import socket
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

import psutil

from dtagent.protocol.facts import ContainerFacts, FileSystem, Interface, NumaNode, UserLimits
from dtagent.protocol.places import is_network_file_system
from dtagent.protocol.rdma import RdmaPort
from dtagent.system import mounts
from dtagent.system.units import MIB

MAX_LISTED = 256
"""Interfaces, file systems and the like of one kind: hosts of containers have thousands of no interest."""
SYS = Path("/sys")
PROC = Path("/proc")

_PSEUDO = frozenset(
    {
        "autofs",
        "binfmt_misc",
        "bpf",
        "cgroup",
        "cgroup2",
        "configfs",
        "debugfs",
        "devpts",
        "devtmpfs",
        "efivarfs",
        "fuse.gvfsd-fuse",
        "fuse.lxcfs",
        "fusectl",
        "hugetlbfs",
        "mqueue",
        "nsfs",
        "proc",
        "pstore",
        "ramfs",
        "rpc_pipefs",
        "securityfs",
        "selinuxfs",
        "squashfs",
        "sysfs",
        "tmpfs",
        "tracefs",
    }
)
_ADJTIMEX_BYTES = 512
"""More than struct timex has on any architecture."""
_TIME_ERROR = 5

_Value = TypeVar("_Value")


def or_none(read: Callable[[], _Value]) -> _Value | None:
    """Return what a reader gives; `None` where this host lacks what it reads, or has it in another form."""
    try:
        return read()
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, RuntimeError, psutil.Error):
        return None


def text(path: Path) -> str | None:
    """Return a small file's content without blanks around it; `None` where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def number(path: Path) -> int | None:
    """Return the whole number a file holds, which is not negative; `None` for all else."""
    try:
        value = int(text(path) or "")
    except ValueError:
        return None
    return value if value >= 0 else None


def cpu_sockets(sys: Path = SYS) -> int | None:
    """Return how many processors are plugged in."""
    cpus = (sys / "devices/system/cpu").glob("cpu[0-9]*/topology/physical_package_id")
    return len({text(path) for path in cpus}) or None


def numa_nodes(sys: Path = SYS) -> list[NumaNode]:
    """Return the NUMA nodes in order."""
    found = []
    for directory in (sys / "devices/system/node").glob("node[0-9]*"):
        total = re.search(r"MemTotal:\s+(\d+) kB", text(directory / "meminfo") or "")
        found.append(
            NumaNode(
                int(directory.name[4:]), text(directory / "cpulist") or "", int(total[1]) // 1024 if total else None
            )
        )
    return sorted(found, key=lambda node: node.index)[:MAX_LISTED]


def file_systems(proc: Path = PROC) -> list[FileSystem]:
    """Return the mounted file systems, each once: where it is mounted by the shortest name."""
    found: dict[str, mounts.Mount] = {}
    for mount in or_none(lambda: list(mounts.read(proc / "self/mountinfo"))) or []:
        if mount.kind in _PSEUDO and mount.point != "/":
            continue
        if mount.device not in found or len(mount.point) < len(found[mount.device].point):
            found[mount.device] = mount
    systems = []
    for mount in sorted(found.values(), key=lambda item: item.point)[:MAX_LISTED]:
        is_network = is_network_file_system(mount.kind)
        use = None if is_network else or_none(partial(psutil.disk_usage, mount.point))
        total, free = (use.total // MIB, use.free // MIB) if use else (None, None)
        systems.append(FileSystem(mount.shown, mount.kind, is_network, total, free, mount.is_read_only))
    return systems


def interfaces(sys: Path = SYS) -> list[Interface]:
    """Return the network interfaces but the loopback, those with a device of their own first."""
    addresses, states = psutil.net_if_addrs(), psutil.net_if_stats()
    found = []
    for name, state in states.items():
        directory = sys / "class/net" / name
        if name == "lo":
            continue
        own = [
            entry.address.partition("%")[0]
            for entry in addresses.get(name, [])
            if entry.family in (socket.AF_INET, socket.AF_INET6)
        ]
        has_device = (directory / "device").exists()
        speed = state.speed if 0 < state.speed < 0xFFFF_FFFF // 1000 else None
        numa_node = number(directory / "device/numa_node")
        found.append(Interface(name, state.isup, own, speed, state.mtu, numa_node, not has_device))
    return sorted(found, key=lambda item: (item.is_virtual, not item.addresses, item.name))[:MAX_LISTED]


def rdma_ports(sys: Path = SYS) -> list[RdmaPort]:
    """Return the ports of all InfiniBand and RoCE devices."""
    found = []
    for directory in sorted((sys / "class/infiniband").glob("*/ports/[0-9]*")):
        device = directory.parents[1]
        rate = re.match(r"([\d.]+)\s*Gb/sec", text(directory / "rate") or "")
        gid = text(directory / "gids/0")
        port = int(directory.name)
        beside = sorted((device / "device/net").glob("*"))
        # Of a device with several ports each interface says which one is its own, counting from nought.
        own = [path for path in beside if number(path / "dev_port") == port - 1]
        interface = own or (beside if len(beside) == 1 else [])
        found.append(
            RdmaPort(
                device=device.name,
                port=port,
                state=(text(directory / "state") or "unknown").rpartition(": ")[2],
                link_layer=text(directory / "link_layer") or None,
                rate_gbit_s=float(rate[1]) if rate else None,
                interface=interface[0].name if interface else None,
                gid=gid if gid and gid.strip("0:") else None,
                numa_node=number(device / "device/numa_node"),
            )
        )
    return found[:MAX_LISTED]


def limits() -> UserLimits:
    """Return what this process, and so a job, may have."""

    def soft(kind: int, unit: int = 1) -> int | None:
        value = resource.getrlimit(kind)[0]
        return None if value == resource.RLIM_INFINITY else value // unit

    return UserLimits(soft(resource.RLIMIT_NOFILE), soft(resource.RLIMIT_MEMLOCK, 1024), soft(resource.RLIMIT_NPROC))


def container(root: Path = Path("/"), environment: Iterable[str] | None = None) -> ContainerFacts | None:
    """Return the container around this process and its cgroup's limits; `None` where there is nothing of either."""
    proc, sys = root / "proc", root / "sys"
    names = set(os.environ if environment is None else environment)
    kind = _container_kind(root, names)
    own = _own_cgroups(proc)
    cpus = [limit for path in _upwards(sys / "fs/cgroup", own.get("")) if (limit := _cpu_max(path))]
    memory = [limit for path in _upwards(sys / "fs/cgroup", own.get("")) if (limit := number(path / "memory.max"))]
    for path in _upwards(sys / "fs/cgroup/cpu", own.get("cpu")):
        quota, period = number(path / "cpu.cfs_quota_us"), number(path / "cpu.cfs_period_us")
        if quota and period:
            cpus.append(quota / period)
    for path in _upwards(sys / "fs/cgroup/memory", own.get("memory")):
        limit = number(path / "memory.limit_in_bytes")
        if limit and limit < 1 << 60:  # Beyond is version 1's word for none.
            memory.append(limit)
    if not kind and not cpus and not memory:
        return None
    return ContainerFacts(kind, round(min(cpus), 2) if cpus else None, min(memory) // MIB if memory else None)


def cuda_toolkits(roots: Iterable[Path] = (Path("/usr/local"), Path("/opt"))) -> dict[str, str]:
    """Return directory → version of the CUDA toolkits in the usual places, links left out where they lead to one."""
    found: dict[Path, str] = {}
    for root in roots:
        for directory in sorted(root.glob("cuda*"))[:MAX_LISTED]:
            told = text(directory / "version.json") or text(directory / "version.txt") or ""
            version = re.search(r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([\d.]+)"|CUDA Version ([\d.]+)', told)
            if version:
                with contextlib.suppress(OSError):
                    found.setdefault(directory.resolve(), version[1] or version[2])
    return {str(path): version for path, version in found.items()}


def time_zone() -> str | None:
    """Return the name of the time zone, `Europe/Berlin`."""
    target = or_none(lambda: os.readlink("/etc/localtime"))
    return target.partition("zoneinfo/")[2] or None if target else text(Path("/etc/timezone")) or None


def clock_synchronized() -> bool | None:
    """Whether the kernel's clock is kept right by something, as NTP or PTP."""
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_ADJTIMEX_BYTES))
    return None if state < 0 else state != _TIME_ERROR


def _container_kind(root: Path, environment: set[str]) -> str | None:
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    for marker, kind in ((".dockerenv", "docker"), ("run/.containerenv", "podman"), ("singularity", "singularity")):
        if (root / marker).exists():
            return kind
    told = text(root / "run/systemd/container") or ""
    return told or None


def _own_cgroups(proc: Path) -> dict[str, str]:
    """Return controller → path of this process's cgroup; version 2 has the name of none."""
    found: dict[str, str] = {}
    for line in (text(proc / "self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            found.update(dict.fromkeys(parts[1].split(","), parts[2]))
    return found


def _upwards(mount: Path, own: str | None) -> list[Path]:
    """Return the directories of a cgroup and of those around it; inside a container its own is the mount itself."""
    if own is None:
        return []
    parts = [part for part in own.split("/") if part not in ("", "..")]
    return [mount.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


def _cpu_max(path: Path) -> float | None:
    quota, _, period = (text(path / "cpu.max") or "max").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None
