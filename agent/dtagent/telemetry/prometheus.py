"""Telemetry as Prometheus text: names, base units, HELP and TYPE as the exporter conventions have them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dtagent.protocol.facts import HostFacts
from dtagent.protocol.metric_fields import metrics_of
from dtagent.protocol.telemetry import GpuSample, HostSample
from dtagent.system.units import MIB

Labels = dict[str, str]


@dataclass
class _Family:
    kind: str
    help: str
    rows: list[tuple[Labels, float]] = field(default_factory=list)


class _Exposition:
    """Collects measurements by family; each family is written once, whole, in the order of its first measurement."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def gauge(self, name: str, text: str, value: float | None, labels: Labels | None = None) -> None:
        """Add a value that goes up and down; `None` adds nothing."""
        self._add("gauge", name, text, value, labels)

    def counter(self, name: str, text: str, value: float | None, labels: Labels | None = None) -> None:
        """Add a count that only grows; its name ends in `_total`."""
        self._add("counter", name, text, value, labels)

    def _add(self, kind: str, name: str, text: str, value: float | None, labels: Labels | None) -> None:
        if value is not None:
            family = self._families.setdefault(f"dtagent_{name}", _Family(kind, text))
            family.rows.append((labels or {}, value))

    def lines(self) -> Iterator[str]:
        for name, family in self._families.items():
            yield f"# HELP {name} {_escaped(family.help, quotes=False)}"
            yield f"# TYPE {name} {family.kind}"
            for labels, value in family.rows:
                pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
                yield f"{name}{{{pairs}}} {_number(value)}" if pairs else f"{name} {_number(value)}"


def exposition(sample: HostSample, facts: HostFacts | None, version: str) -> str:
    """Return the text of one sample.

    Args:
        sample: the reading.
        facts: names and ids of the GPUs; without them their labels are empty.
        version: the agent's.
    """
    out = _Exposition()
    out.gauge("build_info", "Version of the agent; always 1.", 1, {"version": version})
    out.gauge("sample_timestamp_seconds", "Unix time of the reading.", sample.time)
    _host(out, sample)
    known = {gpu.index: gpu for gpu in facts.gpus} if facts else {}
    for gpu in sample.gpus:
        fact = known.get(gpu.index)
        labels = {"gpu": str(gpu.index), "uuid": (fact.uuid if fact else None) or ""}
        out.gauge("gpu_info", "Name of the GPU; always 1.", 1, {**labels, "name": fact.name if fact else ""})
        _gpu(out, gpu, labels)
    held = {(process.pid, gpu.index) for gpu in sample.gpus for process in gpu.processes or ()}
    for job, ranks in sample.ranks.items():
        for rank in ranks:
            labels = {"job": job, "rank": str(rank.rank)}
            for index in sorted(index for pid, index in held if pid == rank.pid):
                fact = known.get(index)
                owned = {**labels, "gpu": str(index), "uuid": (fact.uuid if fact else None) or ""}
                out.gauge("gpu_rank_info", "Which rank computes on which GPU; always 1.", 1, owned)
            _declared(out, rank, labels)
    return "\n".join([*out.lines(), ""])


def _declared(out: _Exposition, item: Any, labels: Labels | None = None) -> None:
    """Add every metric of a sample that has a name here."""
    kind: type = type(item)
    for name, metric in metrics_of(kind).items():
        value = getattr(item, name)
        if metric.prometheus is not None and value is not None:
            add = out.counter if metric.prometheus.endswith("_total") else out.gauge
            add(metric.prometheus, metric.help, metric.base(value), labels)


def _host(out: _Exposition, sample: HostSample) -> None:
    _declared(out, sample)
    for item in sample.file_systems or ():
        labels = {"mountpoint": item.mount}
        out.gauge("filesystem_used_bytes", "Space in use.", _bytes(item.used_mib), labels)
        out.gauge("filesystem_avail_bytes", "Space for users.", _bytes(item.available_mib), labels)
        out.gauge("filesystem_size_bytes", "Space there is.", _bytes(item.total_mib), labels)
    for disk in sample.disks or ():
        labels = {"device": disk.name}
        out.gauge("disk_read_bytes_per_second", "Bytes read.", disk.receive_bytes_per_s, labels)
        out.gauge("disk_written_bytes_per_second", "Bytes written.", disk.transmit_bytes_per_s, labels)
        out.gauge("disk_busy_ratio", "Share of the time with work in flight.", _part(disk.busy_percent), labels)
    for name, rate in sample.network_receive_bytes_per_s.items():
        out.gauge("network_receive_bytes_per_second", "Bytes received.", rate, {"device": name})
    for name, rate in sample.network_transmit_bytes_per_s.items():
        out.gauge("network_transmit_bytes_per_second", "Bytes sent.", rate, {"device": name})
    for name, count in (sample.network_errors or {}).items():
        out.counter("network_errors_total", "Errors and dropped packets.", count, {"device": name})
    for port in sample.rdma or ():
        labels = {"device": port.name.partition("/")[0], "port": port.name.partition("/")[2]}
        out.gauge("rdma_receive_bytes_per_second", "Bytes received.", port.receive_bytes_per_s, labels)
        out.gauge("rdma_transmit_bytes_per_second", "Bytes sent.", port.transmit_bytes_per_s, labels)
        out.counter("rdma_errors_total", "Errors of the port.", port.errors, labels)


def _gpu(out: _Exposition, gpu: GpuSample, labels: Labels) -> None:
    out.gauge("gpu_up", "1 where the driver can read the GPU.", float(gpu.error is None), labels)
    _declared(out, gpu, labels)
    for reason in gpu.throttle_reasons or ():
        out.gauge("gpu_throttled", "1 for each reason that holds the clocks back.", 1, {**labels, "reason": reason})
    if gpu.recovery_action is not None:
        action = {**labels, "action": gpu.recovery_action}
        out.gauge("gpu_recovery_action", "1 for what the driver wants done.", 1, action)
    for instance in gpu.mig_instances or ():
        part = {**labels, "instance": instance.uuid}
        out.gauge("gpu_mig_memory_used_bytes", "Memory in use.", _bytes(instance.memory_used_mib), part)
        out.gauge("gpu_mig_memory_total_bytes", "Memory of the instance.", _bytes(instance.memory_total_mib), part)
    for process in {each.pid: each for each in gpu.processes or ()}.values():
        owner = {**labels, "pid": str(process.pid), "user": process.user or ""}
        text = "Memory of the GPU that a process holds."
        out.gauge("gpu_process_memory_bytes", text, _bytes(process.memory_used_mib), owner)


def _part(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * MIB


def _number(value: float) -> str:
    return repr(float(value)) if isinstance(value, float) and not value.is_integer() else str(int(value))


def _escaped(text: str, *, quotes: bool = True) -> str:
    # Mount points and devices have the names that somebody gave them, and this may be printed at a terminal.
    harmless = "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)
    safe = harmless.replace("\\", "\\\\").replace("\n", "\\n")
    return safe.replace('"', '\\"') if quotes else safe
