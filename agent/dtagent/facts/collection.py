"""What this host is: gathered once on request, from /proc, psutil, the driver and the interpreters asked about."""

from __future__ import annotations

import os
import platform
import re
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from dtagent import linger
from dtagent.facts.interpreters import Behind, ModuleQuestion, examine_all
from dtagent.protocol import sentences
from dtagent.protocol.facts import HostFacts
from dtagent.system import processes, system_facts, users
from dtagent.system.readings import Readings
from dtagent.system.units import MIB
from dtagent.telemetry.nvml import GpuInventory, Nvml

DRIVER_WAIT_S = 10.0
DISKS_WAIT_S = 5.0

_READINGS = Readings(most=3)
"""Of this host, whoever asks: what hangs is not asked again as long as it does."""
_UNREACHABLE = re.compile(r"127\.|169\.254\.|::1$|fe[89ab][0-9a-f]:", re.IGNORECASE)
"""Loopback and link-local addresses: no other host gets here by them."""

_ARM_CORES = {
    "0xd08": "Cortex-A72",
    "0xd0b": "Cortex-A76",
    "0xd0c": "Neoverse N1",
    "0xd40": "Neoverse V1",
    "0xd49": "Neoverse N2",
    "0xd4f": "Neoverse V2",
    "0xd83": "Neoverse V3AE",
    "0xd84": "Neoverse V3",
    "0xd8e": "Neoverse N3",
}
"""`CPU part` of /proc/cpuinfo where the implementer is Arm (0x41), from Arm's technical reference manuals."""


def collect(
    pythons: list[str],
    nvml: Nvml,
    driver_wait_s: float = DRIVER_WAIT_S,
    *,
    behind: Behind | None = None,
    packages: Sequence[str] = (),
    modules: ModuleQuestion | None = None,
) -> HostFacts:
    """Gather the facts. Blocks for as long as the interpreters take, so not for an event loop's thread.

    Args:
        pythons: interpreters to examine: absolute paths, or names on PATH.
        nvml: the driver.
        driver_wait_s: how long the driver may take to answer.
        behind: what the interpreters are to be started behind.
        packages: distributions to look for besides those that always are.
        modules: modules to look for besides.
    """
    system = os.uname()
    kept = system_facts.or_none
    shm = kept(lambda: psutil.disk_usage("/dev/shm"))  # noqa: S108 - its size is asked, nothing is written
    inventory = _inventory(nvml, driver_wait_s)
    return HostFacts(
        hostname=socket.gethostname(),
        user=users.name_of(os.getuid()),
        os=_operating_system(),
        kernel=system.release,
        architecture=system.machine,
        boot_id=processes.boot_id(),
        booted_at=psutil.boot_time(),
        cpu_model=cpu_model(system_facts.text(Path("/proc/cpuinfo")) or "", system.machine),
        cpu_count=len(os.sched_getaffinity(0)),
        memory_total_mib=psutil.virtual_memory().total // MIB,
        gpus=inventory.gpus,
        driver_version=inventory.driver_version,
        gpu_note=inventory.note,
        addresses=_addresses(),
        pythons=examine_all(pythons, behind=behind, packages=packages, modules=modules),
        logout_kills=linger.logout_kills(),
        cpu_sockets=kept(system_facts.cpu_sockets),
        cpu_cores=kept(lambda: psutil.cpu_count(logical=False)),
        numa_nodes=kept(system_facts.numa_nodes),
        swap_total_mib=kept(lambda: psutil.swap_memory().total // MIB),
        shm_total_mib=shm.total // MIB if shm else None,
        shm_free_mib=shm.free // MIB if shm else None,
        file_systems=_READINGS.within("file systems", system_facts.file_systems, DISKS_WAIT_S),
        interfaces=kept(system_facts.interfaces),
        rdma=kept(system_facts.rdma_ports),
        limits=kept(system_facts.limits),
        container=kept(system_facts.container),
        cuda_version=inventory.cuda_version,
        cuda_toolkits=_READINGS.within("toolkits", system_facts.cuda_toolkits, DISKS_WAIT_S),
        time=time.time(),
        time_zone=kept(system_facts.time_zone),
        clock_synchronized=kept(system_facts.clock_synchronized),
    )


def cpu_model(cpuinfo: str, architecture: str) -> str:
    """Return the name of the processor from the text of /proc/cpuinfo, else what can be told of it."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, colon, value = line.partition(":")
        if colon and value.strip():
            fields.setdefault(key.strip(), value.strip())
    # x86 and some Arm kernels say "model name", POWER "cpu", small Arm boards "Model" or "Hardware".
    for key in ("model name", "cpu", "Model", "Hardware"):
        if key in fields:
            return " ".join(fields[key].split())
    if fields.get("CPU implementer") == "0x41" and "CPU part" in fields:
        return f"Arm {_ARM_CORES.get(fields['CPU part'], 'part ' + fields['CPU part'])}"
    if "CPU implementer" in fields:
        return f"{architecture}, implementer {fields['CPU implementer']} part {fields.get('CPU part', 'unknown')}"
    return architecture


def _inventory(nvml: Nvml, wait_s: float) -> GpuInventory:
    """Ask the driver, in case it hangs from afar."""
    found: GpuInventory | None = _READINGS.within("driver", lambda: nvml.facts(wait_s), wait_s + 1.0)
    return found or GpuInventory(note=sentences.DRIVER_SILENT_FOR(seconds=f"{wait_s:g}"))


def _operating_system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _addresses() -> dict[str, list[str]]:
    try:
        interfaces = psutil.net_if_addrs()
    except OSError:
        return {}
    reachable = {
        name: [
            entry.address.partition("%")[0]
            for entry in entries
            if entry.family in (socket.AF_INET, socket.AF_INET6) and not _UNREACHABLE.match(entry.address)
        ]
        for name, entries in interfaces.items()
    }
    return {name: found for name, found in reachable.items() if found}
