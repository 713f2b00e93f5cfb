"""What `dtagent top` shows: a sample as lines of a given width. Pure, but for the commands that /proc names."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from dtagent.protocol.telemetry import DeviceRate, GpuSample, HostFacts, HostSample

LEAST_WIDTH = 40
_HOT_C = 85
_FULL = 0.9
"""Share from which a bar is marked."""

BOLD, DIM, RED, YELLOW, GREEN, CYAN = "1", "2", "31", "33", "32", "36"
"""Parameters of ANSI's SGR: the terminal's own colours, so that they fit its theme."""


class Piece(NamedTuple):
    """Text and how it is set."""

    text: str
    style: str = ""


Line = list[Piece]


@dataclass(frozen=True)
class Look:
    """What the terminal can show."""

    width: int
    height: int | None = None
    """`None`: as long as it needs."""
    colour: bool = False
    unicode: bool = True


def render(
    sample: HostSample, facts: HostFacts, source: str, look: Look, command_of: Callable[[int], str]
) -> list[str]:
    """Return the lines to show, each at most `look.width` cells wide.

    Args:
        sample: the reading.
        facts: names of the host and its GPUs.
        source: where the reading comes from.
        look: the terminal.
        command_of: gives a process's command line; empty where it is gone.
    """
    bar_cells = max(6, min(24, (look.width - 78) // 2))
    head: list[Line] = [_headline(sample, facts, source), *_host(sample, bar_cells, look)]
    head += [[], *_gpus(sample, facts, bar_cells, look)]
    body = _processes(sample, command_of)
    if body:
        head.append([])
    if look.height is not None:
        room = look.height - len(head) - 1
        if len(body) > room:
            hidden = len(body) - max(room, 1) + 1
            body = [*body[: max(room, 1) - 1], [Piece(f"  and {hidden} more", DIM)]]
    lines = [*head, *body]
    if look.height is not None:
        lines = lines[: look.height - 1]
        lines += [[] for _ in range(look.height - 1 - len(lines))] + [[Piece(" q", BOLD), Piece(" quit", DIM)]]
    return [_set(line, look) for line in lines]


def printable(text: str) -> str:
    """Return what may go to a terminal: no control, format, bidi or other invisible characters."""
    return "".join(char for char in text if char.isprintable())


def cells(text: str) -> int:
    """Return how many columns a text takes."""
    return len(text) if text.isascii() else sum(_cells_of(char) for char in text)


def _cells_of(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _cut(text: str, width: int) -> str:
    if cells(text) <= width:
        return text
    kept, used = [], 0
    for char in text:
        used += _cells_of(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept)


def _set(line: Line, look: Look) -> str:
    """Return a line as a string, cut to the width."""
    room = look.width
    out = []
    for text, style in line:
        shown = _cut(printable(text), room)
        room -= cells(shown)
        if not look.unicode:
            shown = shown.translate(_ASCII).encode("ascii", "replace").decode()
        out.append(f"\x1b[{style}m{shown}\x1b[0m" if look.colour and style and shown else shown)
    return "".join(out).rstrip()


_ASCII = str.maketrans({"█": "#", "░": ".", "·": "-", "°": " ", "↓": "<", "↑": ">", "…": "~"})


def _headline(sample: HostSample, facts: HostFacts, source: str) -> Line:
    at = time.strftime("%H:%M:%S", time.localtime(sample.time))
    driver = f" · driver {facts.driver_version}" if facts.driver_version else ""
    up_s = max(0.0, sample.time - facts.booted_at)
    rest = f" · {at} · up {_span(up_s)}{driver} · {source}"
    return [Piece(f" {facts.hostname}", BOLD), Piece(rest, DIM)]


def _host(sample: HostSample, bar_cells: int, look: Look) -> list[Line]:
    loads = [load for load in (sample.load1, sample.load5, sample.load15) if load is not None]
    load = "  load " + " ".join(f"{each:.1f}" for each in loads) if loads else ""
    cpus = f" of {sample.cpu_count} CPUs" if sample.cpu_count else ""
    cpu = sample.cpu_percent
    lines = [
        [Piece(" CPU    ", CYAN), *_bar(_share(cpu, 100), bar_cells), Piece(f" {_percent(cpu)}{cpus}{load}")],
        [
            Piece(" memory ", CYAN),
            *_bar(_share(sample.memory_used_mib, sample.memory_total_mib), bar_cells),
            Piece(f" {_of(sample.memory_used_mib, sample.memory_total_mib)}{_swap(sample)}"),
        ],
    ]
    space = [
        Piece(f"  {item.mount} {100 * item.used_mib / item.total_mib:.0f}%", _mark(item.used_mib / item.total_mib))
        for item in sample.file_systems or ()
    ]
    busy = [_flow(disk, "read", "write") for disk in _busiest(sample.disks or [])]
    if space or busy:
        lines.append([Piece(" disk ", CYAN), *space, *busy])
    network = [
        DeviceRate(name, round(rate), round(sample.network_transmit_bytes_per_s.get(name, 0)))
        for name, rate in sample.network_receive_bytes_per_s.items()
    ]
    flows = [_flow(port, "↓", "↑") for port in _busiest([*network, *(sample.rdma or [])])]
    if flows:
        lines.append([Piece(" net  ", CYAN), *flows])
    return lines


def _swap(sample: HostSample) -> str:
    return f"  swap {_of(sample.swap_used_mib, sample.swap_total_mib)}" if sample.swap_total_mib else ""


def _busiest(rates: list[DeviceRate]) -> list[DeviceRate]:
    """Return the few through which most passes; of idle ones, one."""
    by_flow = sorted(rates, key=lambda rate: -(rate.receive_bytes_per_s + rate.transmit_bytes_per_s))
    return [rate for rate in by_flow[:3] if rate is by_flow[0] or rate.receive_bytes_per_s or rate.transmit_bytes_per_s]


def _flow(rate: DeviceRate, receive: str, transmit: str) -> Piece:
    text = (
        f"  {rate.name} {receive} {_bytes(rate.receive_bytes_per_s)}/s {transmit} {_bytes(rate.transmit_bytes_per_s)}/s"
    )
    return Piece(text)


def _gpus(sample: HostSample, facts: HostFacts, bar_cells: int, look: Look) -> list[Line]:
    if not sample.gpus:
        return [[Piece(f" {facts.gpu_note or 'no GPUs'}", DIM)]]
    names = {gpu.name for gpu in facts.gpus}
    title = f"{len(sample.gpus)} × {names.pop()}" if len(names) == 1 else f"{len(sample.gpus)} GPUs"
    header = f" GPU {'use':<{bar_cells + 5}}  {'memory':<{bar_cells + 11}}   temp      power    clock  "
    lines: list[Line] = [[Piece(f"{header}{title}" if cells(header + title) <= look.width else header, DIM)]]
    return lines + [_gpu(gpu, bar_cells) for gpu in sample.gpus]


def _gpu(gpu: GpuSample, bar_cells: int) -> Line:
    if gpu.error:
        return [Piece(f" {gpu.index:>3} ", BOLD), Piece(f"! {gpu.error}", RED)]
    temperature = f"{gpu.temperature_c}°C" if gpu.temperature_c is not None else ""
    limit = f"/{gpu.power_limit_w:.0f}" if gpu.power_limit_w is not None else ""
    power = f"{gpu.power_w:.0f}{limit} W" if gpu.power_w is not None else ""
    clock = f"{gpu.sm_clock_mhz} MHz" if gpu.sm_clock_mhz is not None else ""
    note, style = _note(gpu)
    return [
        Piece(f" {gpu.index:>3} ", BOLD),
        *_bar(_share(gpu.utilization_percent, 100), bar_cells),
        Piece(f" {_percent(gpu.utilization_percent):>4}  "),
        *_bar(_share(gpu.memory_used_mib, gpu.memory_total_mib), bar_cells),
        Piece(f" {_of(gpu.memory_used_mib, gpu.memory_total_mib):<10}  "),
        Piece(f"{temperature:>5}", RED if (gpu.temperature_c or 0) >= _HOT_C else ""),
        Piece(f"  {power:>9} {clock:>8}  "),
        Piece(note, style),
    ]


def _note(gpu: GpuSample) -> tuple[str, str]:
    """Return what a person should know of a GPU: the worst first."""
    bad = []
    if gpu.xid_count:
        bad.append(f"Xid {gpu.xid_last}")
    if gpu.recovery_action not in (None, "none"):
        bad.append(f"wants {gpu.recovery_action}")
    if gpu.memory_repair_failed:
        bad.append("memory beyond repair")
    if gpu.ecc_uncorrected:
        bad.append(f"ECC {gpu.ecc_uncorrected}")
    if gpu.nvlinks and gpu.nvlinks_active is not None and gpu.nvlinks_active < gpu.nvlinks:
        bad.append(f"NVLink {gpu.nvlinks_active}/{gpu.nvlinks}")
    if bad:
        return f"! {', '.join(bad)}", RED
    if gpu.memory_repair_pending:
        return "! memory repair at reset", YELLOW
    if gpu.throttle_reasons:
        return ", ".join(gpu.throttle_reasons), YELLOW
    if gpu.mig_enabled:
        return f"MIG, {len(gpu.mig_instances or [])} instances", DIM
    return "", ""


class _Row(NamedTuple):
    gpu: str
    pid: int
    user: str
    memory: str
    owner: str
    cpu: str


def _processes(sample: HostSample, command_of: Callable[[int], str]) -> list[Line]:
    ranks = {rank.pid: (job, rank) for job, items in sample.ranks.items() for rank in items}
    rows = []
    for gpu in sample.gpus:
        for process in {each.pid: each for each in gpu.processes or ()}.values():
            job, rank = ranks.get(process.pid, ("", None))
            owner = f"{job} rank {rank.rank}" if rank else ""
            cpu = _percent(rank.cpu_percent) if rank else ""
            memory = _mib(process.memory_used_mib)
            rows.append(_Row(str(gpu.index), process.pid, process.user or "?", memory, owner, cpu))
    shown = {row.pid for row in rows}
    for pid, (job, rank) in ranks.items():
        if pid not in shown:
            owner = f"{job} rank {rank.rank}"
            rows.append(_Row("", pid, "", _mib(rank.memory_used_mib), owner, _percent(rank.cpu_percent)))
    if not rows:
        return []
    user_cells = max(4, *(min(12, cells(printable(row.user))) for row in rows))
    owner_cells = max(min(28, cells(printable(row.owner))) for row in rows)
    gap = "  " if owner_cells else ""
    title = f" GPU     PID {_padded('user', user_cells)}  memory  CPU  {_padded('job', owner_cells)}{gap}command"
    lines: list[Line] = [[Piece(title, DIM)]]
    for row in rows:
        start = f" {row.gpu:>3} {row.pid:>7} {_padded(row.user, user_cells)} {row.memory:>7} {row.cpu:>4}  "
        middle = _padded(row.owner, owner_cells) + gap
        lines.append([Piece(start), Piece(middle, GREEN), Piece(command_of(row.pid))])
    return lines


def _padded(text: str, width: int) -> str:
    cut = _cut(printable(text), width)
    return cut + " " * (width - cells(cut))


def _bar(share: float | None, width: int) -> Line:
    if share is None:
        return [Piece("░" * width, DIM)]
    full = round(min(1.0, max(0.0, share)) * width)
    return [Piece("█" * full, _mark(share) or GREEN), Piece("░" * (width - full), DIM)]


def _mark(share: float) -> str:
    return YELLOW if share >= _FULL else ""


def _share(used: float | None, total: float | None) -> float | None:
    return None if used is None or not total else used / total


def _percent(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}%"


def _of(used_mib: int | None, total_mib: int | None) -> str:
    if used_mib is None or total_mib is None:
        return _mib(used_mib)
    if total_mib < 10 * 1024:
        return f"{used_mib / 1024:.1f}/{total_mib / 1024:.1f} GiB"
    return f"{used_mib / 1024:.0f}/{total_mib / 1024:.0f} GiB"


def _mib(mib: int | None) -> str:
    if mib is None:
        return "?"
    if mib < 1024:
        return f"{mib} MiB"
    return f"{mib / 1024:.0f} GiB" if mib >= 10 * 1024 else f"{mib / 1024:.1f} GiB"


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"


def _span(seconds: float) -> str:
    minutes = int(seconds) // 60
    days, hours = minutes // 1440, minutes // 60 % 24
    return f"{days}d {hours}h" if days else f"{hours}h {minutes % 60}m" if hours else f"{minutes}m"
