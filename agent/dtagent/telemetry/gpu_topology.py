"""Where each GPU sits and how it reaches the others, by NVML and /sys. What the driver refuses is left out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dtagent.system.system_facts import number, text
from dtagent.telemetry.gpu_metrics import MOST_NVLINKS

SYS_PCI = Path("/sys/bus/pci/devices")
NVLINK_TO_SWITCH = 2
"""nvmlIntNvLinkDeviceType_t: 0 is a GPU, 1 a CPU (IBM POWER)."""

_ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""nvmlGpuTopologyLevel_t → the terms of `nvidia-smi topo -m`; 0 is another part of the same board."""

Failures = tuple[type[Exception], ...]


def cuda_version(nvml: Any, failures: Failures) -> str | None:
    """Return the newest CUDA that the driver runs."""
    told = _ask(nvml, failures, "nvmlSystemGetCudaDriverVersion_v2")
    return f"{told // 1000}.{told % 1000 // 10}" if isinstance(told, int) else None


def places(nvml: Any, handles: Mapping[int, Any], failures: Failures, sys: Path = SYS_PCI) -> dict[int, dict[str, Any]]:
    """Return for each GPU the fields of `GpuFacts` that say where it is.

    Args:
        nvml: pynvml.
        handles: index → handle of the GPUs that can be asked.
        failures: what pynvml raises where the driver refuses.
        sys: where the kernel lists PCI devices.
    """
    addresses = {index: _pci_address(nvml, handle, failures) for index, handle in handles.items()}
    by_address = {address: index for index, address in addresses.items() if address}
    links = {index: _links(nvml, handle, by_address, failures) for index, handle in handles.items()}
    found = {}
    for index, handle in handles.items():
        address = addresses[index]
        near = number(sys / address / "numa_node") if address else None
        told = _ask(nvml, failures, "nvmlDeviceGetNumaNodeId", handle)
        capability = _ask(nvml, failures, "nvmlDeviceGetCudaComputeCapability", handle)
        mig = _ask(nvml, failures, "nvmlDeviceGetMigMode", handle)
        found[index] = {
            "pci_address": address,
            "numa_node": near if near is not None else told if isinstance(told, int) and told >= 0 else None,
            "cpus": (text(sys / address / "local_cpulist") or None) if address else None,
            "compute_capability": ".".join(map(str, capability)) if capability else None,
            "mig_enabled": bool(mig[0]) if mig else None,
            "paths": _paths(nvml, index, handles, links, failures),
        }
    return found


def _paths(
    nvml: Any,
    index: int,
    handles: Mapping[int, Any],
    links: Mapping[int, tuple[dict[int, int], int]],
    failures: Failures,
) -> list[str] | None:
    """Return how a GPU reaches each of the host's, `?` where the driver does not say; `None` where it says nothing."""
    found = []
    to_gpus, to_switch = links[index]
    for other in range(max(handles) + 1):
        if other == index:
            found.append("X")
        elif other in to_gpus:
            found.append(f"NV{to_gpus[other]}")
        elif to_switch and other in links and links[other][1]:
            found.append(f"NV{min(to_switch, links[other][1])}")
        elif other in handles:
            level = _ask(nvml, failures, "nvmlDeviceGetTopologyCommonAncestor", handles[index], handles[other])
            found.append(_ANCESTORS.get(level, "?"))
        else:
            found.append("?")
    return found if set(found) != {"X", "?"} else None


def _links(nvml: Any, handle: Any, by_address: Mapping[str, int], failures: Failures) -> tuple[dict[int, int], int]:
    """Return how many NVLinks lead to each GPU, and how many to switches."""
    to_gpus: dict[int, int] = {}
    to_switch = 0
    for link in range(MOST_NVLINKS):
        is_up = _ask(nvml, failures, "nvmlDeviceGetNvLinkState", handle, link)
        if is_up is None:
            break  # Beyond the last, or there are none.
        if not is_up:
            continue
        kind = _ask(nvml, failures, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        if kind == NVLINK_TO_SWITCH:
            to_switch += 1
            continue
        remote = _ask(nvml, failures, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
        other = by_address.get(_plain(remote.busId)) if remote is not None else None
        if other is not None:
            to_gpus[other] = to_gpus.get(other, 0) + 1
    return to_gpus, to_switch


def _pci_address(nvml: Any, handle: Any, failures: Failures) -> str | None:
    told = _ask(nvml, failures, "nvmlDeviceGetPciInfo", handle)
    return _plain(told.busId) if told is not None else None


def _plain(bus_id: str | bytes) -> str:
    """Return an address as /sys has it: NVML gives the domain eight digits, and upper case."""
    name = bus_id.decode(errors="replace") if isinstance(bus_id, bytes) else bus_id
    return re.sub(r"^0000(?=[0-9a-f]{4}:)", "", name.lower())


def _ask(nvml: Any, failures: Failures, name: str, *arguments: Any) -> Any:
    try:
        return getattr(nvml, name)(*arguments)
    except failures:
        return None
