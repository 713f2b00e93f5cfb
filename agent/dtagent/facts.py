"""What this host is: gathered once on request, from /proc, psutil, the driver and the interpreters asked about."""

from __future__ import annotations

import os
import platform
import pwd
import re
import socket
import threading
from pathlib import Path

import psutil

from dtagent import processes
from dtagent.interpreters import examine_all
from dtagent.nvml import GpuInventory, Nvml
from dtagent.protocol.telemetry import HostFacts

MIB = 1024 * 1024
DRIVER_WAIT_S = 10.0

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


def collect(pythons: list[str], nvml: Nvml, driver_wait_s: float = DRIVER_WAIT_S) -> HostFacts:
    """Gather the facts. Blocks for as long as the interpreters take, so not for an event loop's thread.

    Args:
        pythons: interpreters to examine: absolute paths, or names on PATH.
        nvml: the driver.
        driver_wait_s: how long the driver may take to answer.
    """
    system = os.uname()
    inventory = _inventory(nvml, driver_wait_s)
    return HostFacts(
        hostname=socket.gethostname(),
        user=_user(),
        os=_operating_system(),
        kernel=system.release,
        architecture=system.machine,
        boot_id=_boot_id(),
        booted_at=psutil.boot_time(),
        cpu_model=cpu_model(_text("/proc/cpuinfo"), system.machine),
        cpu_count=len(os.sched_getaffinity(0)),
        memory_total_mib=psutil.virtual_memory().total // MIB,
        gpus=inventory.gpus,
        driver_version=inventory.driver_version,
        gpu_note=inventory.note,
        addresses=_addresses(),
        pythons=examine_all(pythons),
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
    """Ask the driver on a thread of its own: one that hangs must not take the answer about all the rest with it."""
    answers: list[GpuInventory] = []
    thread = threading.Thread(target=lambda: answers.append(nvml.facts(wait_s)), name="gpu-facts", daemon=True)
    thread.start()
    thread.join(wait_s + 1.0)
    return answers[0] if answers else GpuInventory(note=f"the NVIDIA driver has not answered for {wait_s:g} s")


def _boot_id() -> str:
    try:
        return processes.boot_id()
    except OSError:
        # Some sandboxes lack the file; the moment of the boot tells boots apart as well.
        return f"booted-{psutil.boot_time():.0f}"


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


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


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
