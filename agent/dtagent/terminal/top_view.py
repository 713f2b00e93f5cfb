"""What `dtagent top` shows: a sample as lines of a given width. Pure; what /proc alone knows, a `HostLookup` tells."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dtagent.protocol.facts import HostFacts
from dtagent.protocol.metric_fields import amount_text, cells_of, is_amount
from dtagent.protocol.telemetry import DeviceRate, DiskUse, GpuSample, HostSample, RankSample
from dtagent.terminal.amounts import size, span
from dtagent.terminal.terminal_text import (
    BOLD,
    CYAN,
    DIM,
    GREEN,
    RED,
    YELLOW,
    Line,
    Piece,
    TerminalTraits,
    bar,
    cells,
    mark,
    padded,
    printable,
    set_line,
)

LEAST_WIDTH = 40
MOST_DEVICES = 2
"""Disks or ports that are shown one by one."""
WIDE = 100
"""Columns from which a GPU's memory has a bar too."""
_HOT_C = 85


class HostLookup(Protocol):
    """What a sample does not tell, and somebody on the host itself can look up."""

    def command_of(self, pid: int) -> Sequence[str]:
        """Return a process's command line, empty where it is gone."""

    def interface(self) -> str | None:
        """Return the network interface that leads outside."""


def render(sample: HostSample, facts: HostFacts, source: str, look: TerminalTraits, host: HostLookup) -> list[str]:
    """Return the lines to show, each at most `look.width` cells wide.

    Args:
        sample: the reading.
        facts: names of the host and its GPUs.
        source: where the reading comes from.
        look: the terminal.
        host: knows the rest.
    """
    bar_cells = max(6, min(24, (look.width - 96) // 2))
    interface = host.interface() or next(
        (each.name for each in facts.interfaces or () if each.is_up and each.addresses), None
    )
    head: list[Line] = [_headline(sample, facts, source), *_host(sample, bar_cells, interface)]
    head += [[], *_gpus(sample, facts, bar_cells, look)]
    titles, rows = _processes(sample, facts, look, host)
    body = [*titles, *rows]
    if body:
        head.append([])
    if look.height is not None:
        if len(head) + len(body) >= look.height:
            head = [line for line in head if line]  # Rather more processes than blank lines.
        room = look.height - len(head) - 1
        if len(body) > room:
            kept = max(room - 1, 0)
            hidden = len(body) - max(kept, len(titles))
            body = [*body[:kept], [Piece(f"  and {hidden} more", DIM)]]
    lines = [*head, *body]
    if look.height is not None:
        lines = lines[: look.height - 1]
        lines += [[] for _ in range(look.height - 1 - len(lines))] + [[Piece(" q", BOLD), Piece(" quit", DIM)]]
    return [set_line(line, look) for line in lines]


def _headline(sample: HostSample, facts: HostFacts, source: str) -> Line:
    at = time.strftime("%H:%M:%S", time.localtime(sample.time))
    driver = f" · driver {facts.driver_version}" if facts.driver_version else ""
    rest = f" · {at} · up {span(sample.time - facts.booted_at)}{driver} · {source}"
    return [Piece(f" {facts.hostname}", BOLD), Piece(rest, DIM)]


def _host(sample: HostSample, bar_cells: int, interface: str | None) -> list[Line]:
    loads = [load for load in (sample.load1, sample.load5, sample.load15) if load is not None]
    load = "  load " + " ".join(f"{each:.1f}" for each in loads) if loads else ""
    cpus = f" of {sample.cpu_count} CPUs" if sample.cpu_count else ""
    cpu = sample.cpu_percent
    memory = _share(sample.memory_used_mib, sample.memory_total_mib)
    lines = [
        [Piece(" CPU    ", CYAN), *bar(_share(cpu, 100), bar_cells), Piece(f" {_percent(cpu)}{cpus}{load}")],
        [
            Piece(" memory ", CYAN),
            *bar(memory, bar_cells, mark(memory) or GREEN),
            Piece(f" {_of(sample.memory_used_mib, sample.memory_total_mib)}{_swap(sample)}"),
        ],
    ]
    space = [_space(item) for item in sample.file_systems or ()]
    disks = _flows(sample.disks or [], "disks", "read", "write")
    if space or disks:
        lines.append([Piece(" disk   ", CYAN), *_spaced([*space, *disks])])
    received = sample.network_receive_bytes_per_s
    interface = interface if interface in received else next(iter(sorted(received)), None)
    network = []
    if interface is not None:
        sent = sample.network_transmit_bytes_per_s.get(interface, 0)
        network = [DeviceRate(interface, round(received[interface]), round(sent))]
    flows = [*_flows(network, "interfaces", "↓", "↑"), *_flows(sample.rdma or [], "RDMA ports", "↓", "↑")]
    if flows:
        lines.append([Piece(" net    ", CYAN), *_spaced(flows)])
    if figures := _figures(sample):
        lines.append([Piece(" host   ", CYAN), *_spaced(figures)])
    return lines


def _swap(sample: HostSample) -> str:
    return f"  swap {_of(sample.swap_used_mib, sample.swap_total_mib)}" if sample.swap_total_mib else ""


def _space(item: DiskUse) -> Piece:
    """Return how full a file system is for its users, as df has it."""
    free = item.total_mib - item.used_mib if item.available_mib is None else item.available_mib
    share = item.used_mib / max(1, item.used_mib + free)
    return Piece(f"{item.mount} {100 * share:.0f}%", mark(share))


def _flows(devices: Sequence[DeviceRate], noun: str, receive: str, transmit: str) -> list[Piece]:
    """Return what passes through each device, or through all where they are many: always the same ones."""
    if len(devices) > MOST_DEVICES:
        into, out = (sum(getattr(each, f"{way}_bytes_per_s") for each in devices) for way in ("receive", "transmit"))
        devices = [DeviceRate(f"{len(devices)} {noun}", into, out)]
    rates = ((each.name, _bytes(each.receive_bytes_per_s), _bytes(each.transmit_bytes_per_s)) for each in devices)
    return [Piece(f"{name} {receive} {into}/s {transmit} {out}/s") for name, into, out in rates]


def _spaced(pieces: Sequence[Piece]) -> Line:
    return [piece for each in pieces for piece in (each, Piece("   "))][:-1]


def _gpus(sample: HostSample, facts: HostFacts, bar_cells: int, look: TerminalTraits) -> list[Line]:
    if not sample.gpus:
        return [[Piece(f" {facts.gpu_note or 'no GPUs'}", DIM)]]
    memory_bar_cells = bar_cells if look.width >= WIDE else 0
    header = f" GPU {'use':<{bar_cells + 5}}  {'memory':<{memory_bar_cells + 11}}   temp      power    clock  "
    names = {gpu.name for gpu in facts.gpus}
    title = f"{len(sample.gpus)} × {names.pop()}" if len(names) == 1 else f"{len(sample.gpus)} GPUs"
    room = look.width - cells(header)
    title = title if cells(title) <= room else title.replace("NVIDIA ", "")
    too_long: dict[int, list[Piece]] = {}
    fits = cells(title) <= room
    lines: list[Line] = [[Piece(header + title, DIM)]] if fits else [[Piece(f" {title}", DIM)], [Piece(header, DIM)]]
    for gpu in sample.gpus:
        notes = _notes(gpu)
        lines.append([*_gpu(gpu, bar_cells, memory_bar_cells), Piece(_note_text(notes), _worst(notes))])
        if cells(_note_text(notes)) > room:
            too_long[gpu.index] = notes
    return lines + _notes_below(too_long, look.width)


def _gpu(gpu: GpuSample, bar_cells: int, memory_bar_cells: int) -> Line:
    if gpu.error:
        return [Piece(f" {gpu.index:>3} ", BOLD), Piece(f"! {gpu.error}", RED)]
    temperature = f"{gpu.temperature_c}°C" if gpu.temperature_c is not None else ""
    limit = f"/{gpu.power_limit_w:.0f}" if gpu.power_limit_w is not None else ""
    power = f"{gpu.power_w:.0f}{limit} W" if gpu.power_w is not None else ""
    clock = f"{gpu.sm_clock_mhz} MHz" if gpu.sm_clock_mhz is not None else ""
    return [
        Piece(f" {gpu.index:>3} ", BOLD),
        *bar(_share(gpu.utilization_percent, 100), bar_cells),
        Piece(f" {_percent(gpu.utilization_percent):>4}  "),
        *bar(_share(gpu.memory_used_mib, gpu.memory_total_mib), memory_bar_cells),
        Piece(f" {_of(gpu.memory_used_mib, gpu.memory_total_mib):<10}  "),
        Piece(f"{temperature:>5}", RED if (gpu.temperature_c or 0) >= _HOT_C else ""),
        Piece(f"  {power:>9} {clock:>8}  "),
    ]


def _notes(gpu: GpuSample) -> list[Piece]:
    """Return what a person should know of a GPU: the worst first."""
    if gpu.error:
        return []  # Which stands in place of its readings.
    found = []
    if gpu.xid_count:
        found.append(Piece(f"Xid {gpu.xid_last}", RED))
    if gpu.recovery_action not in (None, "none"):
        found.append(Piece(f"wants {gpu.recovery_action}", RED))
    if gpu.memory_repair_failed:
        found.append(Piece("memory beyond repair", RED))
    if gpu.ecc_uncorrected:
        found.append(Piece(f"ECC {gpu.ecc_uncorrected}", RED))
    if gpu.nvlinks and gpu.nvlinks_active is not None and gpu.nvlinks_active < gpu.nvlinks:
        found.append(Piece(f"NVLink {gpu.nvlinks_active}/{gpu.nvlinks}", RED))
    if gpu.memory_repair_pending:
        found.append(Piece("memory repair at reset", YELLOW))
    found += [Piece(reason, YELLOW) for reason in gpu.throttle_reasons or ()]
    if gpu.mig_enabled:
        found.append(Piece(f"MIG, {len(gpu.mig_instances or [])} instances", DIM))
    return [*found, *_figures(gpu)]


def _figures(sample: HostSample | GpuSample) -> list[Piece]:
    """Return what is declared to be shown of a sample, after its name; what has none has a column."""
    kind: type = type(sample)
    found = []
    for name, item in cells_of(kind).items():
        value = getattr(sample, name)
        if item.cell and value is not None:
            number = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
            symbol = item.unit.symbol
            text = amount_text(value, symbol) if is_amount(symbol) else f"{number}{symbol}"
            found.append(Piece(f"{item.cell} {text}", DIM))
    return found


def _worst(notes: Sequence[Piece]) -> str:
    return notes[0].style if notes else ""


def _note_text(notes: Sequence[Piece]) -> str:
    mark = "! " if _worst(notes) == RED else ""
    return mark + ", ".join(note.text for note in notes)


def _notes_below(notes: dict[int, list[Piece]], width: int) -> list[Line]:
    """Return what there is to say of GPUs in lines of their own, once for all of which it is true."""
    owners: dict[Piece, list[int]] = {}
    for index, found in notes.items():
        for note in found:
            owners.setdefault(note, []).append(index)
    by_gpus: dict[str, list[Piece]] = {}
    for note, indexes in owners.items():
        by_gpus.setdefault(_numbered(indexes), []).append(note)
    lines: list[Line] = []
    for gpus, found in by_gpus.items():
        line: Line = [Piece(f" {gpus}: ", _worst(found))]
        for number, note in enumerate(found):
            text = note.text + ("," if number < len(found) - 1 else "")
            if len(line) > 1 and sum(cells(piece.text) for piece in line) + cells(text) > width:
                lines.append(line)
                line = [Piece("   ")]
            line.append(Piece(f"{text} ", note.style))
        lines.append(line)
    return lines


def _numbered(indexes: Sequence[int]) -> str:
    """Return numbers of GPUs, runs of them joined: `GPU 3`, `GPUs 0-5, 7`."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    text = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"GPU {text}" if len(indexes) == 1 else f"GPUs {text}"


class _Row(NamedTuple):
    gpu: str
    rank: str
    pid: int
    user: str
    gpu_memory: str
    memory: str
    cpu: str
    job: str


def _processes(
    sample: HostSample, facts: HostFacts, look: TerminalTraits, host: HostLookup
) -> tuple[list[Line], list[Line]]:
    """Return what stands over the processes, and a line each."""
    ranks = {rank.pid: (job, rank) for job, items in sample.ranks.items() for rank in items}
    rows = []
    for gpu in sample.gpus:
        for process in {each.pid: each for each in gpu.processes or ()}.values():
            user, memory = process.user or "?", _mib(process.memory_used_mib)
            rows.append(_row(str(gpu.index), process.pid, user, memory, *ranks.get(process.pid, ("", None))))
    shown = {row.pid for row in rows}
    # Only this user's agent knows ranks.
    rows += [_row("", pid, facts.user, "", *rank) for pid, rank in ranks.items() if pid not in shown]
    if not rows:
        return [], []
    user_cells = max(4, *(min(12, cells(printable(row.user))) for row in rows))
    start = f" GPU rank     PID {padded('user', user_cells)}  GPU mem host mem   CPU  "
    jobs = {row.job for row in rows} - {""}
    longest = max(cells(printable(job)) for job in jobs) if len(jobs) > 1 else 0
    job_cells = min(longest, max(8, (look.width - cells(start)) // 2))
    gap = "  " if job_cells else ""
    titles: list[Line] = [[Piece(" job ", DIM), Piece(next(iter(jobs)), GREEN)]] if len(jobs) == 1 else []
    titles.append([Piece(f"{start}{padded('job' if longest else '', job_cells)}{gap}command", DIM)])
    lines: list[Line] = []
    for row in rows:
        begin = f" {row.gpu:>3} {row.rank:>4} {row.pid:>7} {padded(row.user, user_cells)} "
        amounts = f"{row.gpu_memory:>8} {row.memory:>8} {row.cpu:>5}  "
        job, command = padded(row.job, job_cells) + gap, spoken(host.command_of(row.pid))
        lines.append([Piece(begin), Piece(amounts), Piece(job, GREEN), Piece(command)])
    return titles, lines


def _row(gpu: str, pid: int, user: str, gpu_memory: str, job: str, rank: RankSample | None) -> _Row:
    if rank is None:
        return _Row(gpu, "", pid, user, gpu_memory, "", "", "")
    return _Row(gpu, str(rank.rank), pid, user, gpu_memory, _mib(rank.memory_used_mib), _percent(rank.cpu_percent), job)


_INTERPRETER = re.compile(r"python[\d.]*")


def spoken(command: Sequence[str]) -> str:
    """Return a command line as a person would name it: a script by its name, without what runs it or where it lies."""
    words = list(command)
    if not words:
        return ""
    program = words[0].rpartition("/")[2] if " " not in words[0] else words[0]
    if _INTERPRETER.fullmatch(program):
        rest = words[1:]
        while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
            rest = rest[2:] if rest[0] in ("-X", "-W") else rest[1:]
        # A rank's script is run by the recorder of its errors.
        if rest and rest[0].endswith("/payload/rank.py"):
            rest = rest[1:]
        if rest[:1] == ["-m"]:
            return " ".join(rest[1:])
        if rest and rest[0] != "-c":
            return " ".join([rest[0].rpartition("/")[2], *rest[1:]])
        return " ".join([program, *rest])
    return " ".join([program, *words[1:]])


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
    return "?" if mib is None else size(mib)


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"
