"""What passes through disks, network interfaces and RDMA ports: counters of /proc and /sys, and their rates."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from dtagent.protocol.telemetry import DeviceRate

SECTOR_BYTES = 512
"""Unit of /proc/diskstats, whatever the disk's own sectors are."""
RDMA_WORD_BYTES = 4
"""Unit of port_rcv_data and port_xmit_data."""
LOOK_S = 30.0
"""Between two looks for disks and ports that have come or gone."""

_VIRTUAL_INTERFACES = ("veth", "cali", "lxc")
"""Ends of containers' cables: a host may have hundreds, and their bytes pass a real interface as well."""
_RDMA_ERRORS = (
    "symbol_error",
    "link_downed",
    "link_error_recovery",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)


def rounded(rate: float) -> int:
    """Return a rate to four digits: more is noise, and noise is what fills the ring."""
    whole = round(rate)
    return whole if whole < 10_000 else round(whole, 4 - len(str(whole)))


class Rates:
    """Turns counters into rates; remembers the counters of the reading before."""

    def __init__(self) -> None:
        self._before: tuple[float, Mapping[str, tuple[int, ...]]] | None = None

    def since_before(self, now: float, counters: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[float, ...]]:
        """Return each counter's growth a second, of those that were there before and have not been set back."""
        before, self._before = self._before, (now, counters)
        if before is None or now <= before[0]:
            return {}
        elapsed_s = now - before[0]
        rates = {}
        for name, values in counters.items():
            earlier = before[1].get(name)
            # Smaller than before: the device was made anew, so this interval says nothing.
            if earlier is not None and all(value >= old for value, old in zip(values, earlier, strict=True)):
                rates[name] = tuple((value - old) / elapsed_s for value, old in zip(values, earlier, strict=True))
        return rates


class KeptFile:
    """A file of /proc or /sys that is read again and again without opening it anew."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> bytes:
        """Return the content of this moment."""
        data = os.pread(self._descriptor, 65536, 0)
        if len(data) < 4096:
            return data
        # The kernel may hand out less than there is.
        while more := os.pread(self._descriptor, 65536, len(data)):
            data += more
        return data

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._descriptor)


class NetworkRates:
    """Network interfaces, by /proc/net/dev."""

    def __init__(self, proc: Path) -> None:
        self._file = KeptFile(proc / "self/net/dev")
        self._rates = Rates()

    def read(self, now: float) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """Return bytes received and sent a second, and errors and drops since the host started, by interface."""
        counters, errors = {}, {}
        for line in self._file.read().split(b"\n")[2:]:
            name_bytes, _, rest = line.partition(b":")
            fields = rest.split()
            name = name_bytes.strip().decode(errors="replace")
            if len(fields) >= 12 and name != "lo" and not name.startswith(_VIRTUAL_INTERFACES):
                counters[name] = (int(fields[0]), int(fields[8]))
                errors[name] = int(fields[2]) + int(fields[3]) + int(fields[10]) + int(fields[11])
        rates = self._rates.since_before(now, counters)
        receive = {name: rounded(rate[0]) for name, rate in rates.items()}
        return receive, {name: rounded(rate[1]) for name, rate in rates.items()}, errors


class DiskRates:
    """Disks, by /proc/diskstats: those with hardware under them, so that no byte is counted twice."""

    def __init__(self, proc: Path, sys: Path) -> None:
        self._file = KeptFile(proc / "diskstats")
        self._blocks = sys / "block"
        self._names: set[bytes] = set()
        self._look_at = float("-inf")
        self._rates = Rates()

    def read(self, now: float) -> list[DeviceRate]:
        """Return the disks' rates."""
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._names = {name.encode() for name in _listed(self._blocks) if (self._blocks / name / "device").exists()}
        counters = {}
        for line in self._file.read().split(b"\n"):
            fields = line.split(None, 13)
            if len(fields) > 12 and fields[2] in self._names:
                counters[fields[2].decode()] = (int(fields[5]), int(fields[9]), int(fields[12]))
        return [
            # The third counter is milliseconds with work in flight.
            DeviceRate(
                name,
                rounded(rate[0] * SECTOR_BYTES),
                rounded(rate[1] * SECTOR_BYTES),
                busy_percent=min(100.0, round(rate[2] / 10, 1)),
            )
            for name, rate in sorted(self._rates.since_before(now, counters).items())
        ]


class RdmaRates:
    """InfiniBand and RoCE ports, by /sys/class/infiniband."""

    def __init__(self, sys: Path) -> None:
        self._directory = sys / "class/infiniband"
        self._ports: dict[str, tuple[KeptFile, KeptFile]] = {}
        self._errors: dict[str, int] = {}
        self._look_at = float("-inf")
        self._rates = Rates()

    def read(self, now: float) -> list[DeviceRate]:
        """Return the ports' rates; empty where there are none."""
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._look()
        counters = {}
        for name, (received, sent) in self._ports.items():
            with contextlib.suppress(OSError, ValueError):
                counters[name] = (int(received.read()), int(sent.read()))
        return [
            DeviceRate(
                name,
                rounded(rate[0] * RDMA_WORD_BYTES),
                rounded(rate[1] * RDMA_WORD_BYTES),
                errors=self._errors.get(name),
            )
            for name, rate in sorted(self._rates.since_before(now, counters).items())
        ]

    def _look(self) -> None:
        self._ports = {}
        self._errors = {}
        for device in _listed(self._directory):
            for port in _listed(self._directory / device / "ports"):
                counters = self._directory / device / "ports" / port / "counters"
                with contextlib.suppress(OSError, ValueError):
                    files = KeptFile(counters / "port_rcv_data"), KeptFile(counters / "port_xmit_data")
                    self._ports[f"{device}/{port}"] = files
                    found = [counters / name for name in _RDMA_ERRORS]
                    self._errors[f"{device}/{port}"] = sum(int(path.read_bytes()) for path in found if path.exists())


def _listed(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
