"""`dtagent facts`: what the daemon would tell. In words for the person at a terminal, as JSON for everything else."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator

from dtagent.facts import collection
from dtagent.protocol.facts import GpuFacts, HostFacts, PythonFacts
from dtagent.protocol.rpc import to_wire
from dtagent.telemetry.nvml import Nvml
from dtagent.terminal import amounts

Row = tuple[str, str]


def facts(arguments: list[str]) -> int:
    """Print the facts of this host and of the interpreters named; `--json` asks for JSON at a terminal too."""
    pythons = [argument for argument in arguments if argument != "--json"]
    found = collection.collect(pythons, Nvml())
    if "--json" in arguments or not sys.stdout.isatty():
        print(json.dumps(to_wire(found), indent=2, ensure_ascii=False))
    else:
        for line in table(_rows(found)):
            print(line)
    return 0


def table(rows: Iterable[Row]) -> Iterator[str]:
    """Yield lines of two columns. What comes from files and drivers may hold anything: it is made harmless."""
    known = list(rows)
    width = max(len(name) for name, _value in known)
    for name, value in known:
        harmless = "".join(char if char.isprintable() else "?" for char in value)
        yield f"{name:<{width}}  {harmless}".rstrip()


def _rows(found: HostFacts) -> Iterator[Row]:
    yield from _of_system(found)
    yield from _of_limits(found)
    yield "clock", _clock(found)
    yield from _of_storage_and_network(found)
    driver = _joined(f"driver {found.driver_version}" if found.driver_version else None, _of_cuda(found.cuda_version))
    yield "NVIDIA", _joined(driver, found.gpu_note)
    for directory, version in (found.cuda_toolkits or {}).items():
        yield f"CUDA {version}", directory
    for gpu in found.gpus:
        yield f"GPU {gpu.index}", _gpu(gpu)
    for python in found.pythons:
        yield f"Python {python.path}", _python(python)


def _of_system(found: HostFacts) -> Iterator[Row]:
    yield "host", f"{found.hostname}, as {found.user}"
    yield (
        "system",
        f"{found.os}, kernel {found.kernel}, {found.architecture}, up {amounts.span(time.time() - found.booted_at)}",
    )
    yield (
        "CPU",
        _joined(
            found.cpu_model,
            _count(found.cpu_sockets, "socket"),
            _count(found.cpu_cores, "core"),
            f"{found.cpu_count} CPUs to run on",
        ),
    )
    for node in found.numa_nodes or [] if len(found.numa_nodes or []) > 1 else []:
        yield f"NUMA node {node.index}", _joined(f"CPUs {node.cpus}", _size(node.memory_total_mib))
    yield "memory", _joined(_size(found.memory_total_mib), _of("swap", found.swap_total_mib))
    yield "/dev/shm", _joined(_size(found.shm_total_mib), _of("free", found.shm_free_mib)) or "none"  # noqa: S108 - its name


def _of_limits(found: HostFacts) -> Iterator[Row]:
    if found.container is not None:
        limits = (found.container.cpu_limit, found.container.memory_limit_mib)
        cpus = f"{limits[0]:g} CPUs at most" if limits[0] is not None else None
        memory = f"{_size(limits[1])} of memory at most" if limits[1] is not None else None
        yield "container", _joined(found.container.kind, cpus, memory)
    if found.limits is not None:
        locked = found.limits.locked_memory_kib
        yield (
            "limits",
            _joined(
                f"open files {_limit(found.limits.open_files)}",
                f"processes {_limit(found.limits.processes)}",
                f"locked memory {'unlimited' if locked is None else _size(locked // 1024)}",
            ),
        )


def _clock(found: HostFacts) -> str:
    return _joined(
        time.strftime("%Y-%m-%d %H:%M:%S %z"),
        found.time_zone,
        {True: "synchronized", False: "NOT synchronized", None: None}[found.clock_synchronized],
    )


def _of_storage_and_network(found: HostFacts) -> Iterator[Row]:
    for system in found.file_systems or []:
        space = _joined(_size(system.total_mib), _of("free", system.free_mib))
        network = "over the network" if system.is_network else None
        yield f"disk {system.mount}", _joined(system.kind, space, network, "read-only" if system.is_read_only else None)
    for interface in found.interfaces or []:
        speed = f"{interface.speed_mbit_s / 1000:g} Gbit/s" if interface.speed_mbit_s else None
        state = "up" if interface.is_up else "down"
        yield f"network {interface.name}", _joined(state, speed, *interface.addresses, _numa(interface.numa_node))
    for port in found.rdma or []:
        rate = f"{port.rate_gbit_s:g} Gbit/s" if port.rate_gbit_s else None
        name = f"RDMA {port.device}/{port.port}"
        yield name, _joined(port.state, port.link_layer, rate, port.interface, _numa(port.numa_node))


def _gpu(gpu: GpuFacts) -> str:
    paths = f"reaches others by {' '.join(gpu.paths)}" if gpu.paths and len(gpu.paths) > 1 else None
    mig = "MIG" if gpu.mig_enabled else None
    return _joined(gpu.name, _size(gpu.memory_total_mib), gpu.pci_address, _numa(gpu.numa_node), mig, paths)


def _python(python: PythonFacts) -> str:
    if python.version is None:
        return python.error or "unknown"
    packages = [f"{name} {version}" for name, version in python.packages.items()]
    return _joined(
        python.version,
        python.environment,
        _of_cuda(python.torch_cuda),
        _of("NCCL", python.nccl),
        *packages,
        python.error,
    )


def _joined(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)


def _count(number: int | None, noun: str) -> str | None:
    return None if number is None else f"{number} {noun}{'' if number == 1 else 's'}"


def _size(mib: int | None) -> str:
    return "" if mib is None else amounts.size(mib)


def _of(what: str, value: int | str | None) -> str | None:
    if value is None:
        return None
    return f"{_size(value)} {what}" if isinstance(value, int) else f"{what} {value}"


def _of_cuda(version: str | None) -> str | None:
    return f"CUDA {version}" if version else None


def _numa(node: int | None) -> str | None:
    return None if node is None else f"NUMA node {node}"


def _limit(value: int | None) -> str:
    return "unlimited" if value is None else str(value)
