"""The GPUs of one host, a line each: how busy, full and warm, and who uses them. For terminals with room for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dtagent.protocol.telemetry import GpuSample
from textual.content import Content

from dttui.i18n import _
from dttui.sanitize import clean_line
from dttui.tui import symbols
from dttui.tui.widgets.cells import bar, fit

if TYPE_CHECKING:
    from dttui.app import EnvironmentStatus, Occupant

MOST_GPUS = 16
"""Lines; of the rest only the number is."""
_BAR = 10
_NAME = 26
_TRACK = "gpu-track"


def gpu_lines(status: EnvironmentStatus) -> Content:
    """Return a head and a line a GPU; nothing where nothing is known of any."""
    sample, facts = status.sample, status.facts
    names = {gpu.index: gpu.name for gpu in facts.gpus} if facts is not None else {}
    read = {gpu.index: gpu for gpu in sample.gpus} if sample is not None else {}
    indices = sorted({*names, *read})
    if not indices:
        return Content("")
    users = _users(status.occupants)
    columns = (
        (" " * 3, 4),
        (_("GPU"), _NAME),
        (_("busy"), _BAR + 7),
        (_("memory"), _BAR + 14),
        (_("warm"), 7),
        (_("power"), 8),
        (_("used by"), 16),
    )
    lines = [Content.styled("".join(fit(text, width) for text, width in columns), "$muted")]
    for index in indices[:MOST_GPUS]:
        lines.append(_line(index, names.get(index, ""), read.get(index), users.get(index, "")))
    if len(indices) > MOST_GPUS:
        lines.append(Content.styled(_("… and {count} more").format(count=len(indices) - MOST_GPUS), "$muted"))
    return Content("\n").join(lines)


def _line(index: int, name: str, gpu: GpuSample | None, user: str) -> Content:
    pieces: list[Content | tuple[str, str] | str] = [(f"{index:>3} ", "bold"), fit(clean_line(name), _NAME)]
    if gpu is None:
        return Content.assemble(*pieces, (_("no reading"), "$muted"))
    busy = gpu.utilization_percent
    pieces += [_bar(None if busy is None else busy / 100), fit("" if busy is None else f" {busy}%", 7)]
    used, total = gpu.memory_used_mib, gpu.memory_total_mib
    told = f" {symbols.mebibytes(used)} / {symbols.mebibytes(total)}" if used is not None and total else ""
    pieces += [_bar(used / total if used is not None and total else None), fit(told, 14)]
    pieces.append(fit("" if gpu.temperature_c is None else f"{gpu.temperature_c}°C", 7))
    pieces.append(fit("" if gpu.power_w is None else f"{gpu.power_w:.0f} W", 8))
    return Content.assemble(*pieces, (user, "$environment-busy") if user else (_("free"), "$environment-idle"))


def _bar(share: float | None) -> Content:
    if share is None:
        return Content(" " * _BAR)
    full, empty = bar(share, _BAR)
    return Content.assemble((full, "$primary"), (empty, "$gpu-track"))


def _users(occupants: Sequence[Occupant]) -> Mapping[int, str]:
    """Return who has a GPU, by its index."""
    found: dict[int, str] = {}
    for occupant in occupants:
        names = dict.fromkeys(filter(None, (occupant.user, occupant.job)))
        told = ": ".join(map(clean_line, names)) or "?"
        if occupant.held_s is not None:
            told += f", {symbols.age(occupant.held_s)}"
        found.update(dict.fromkeys(occupant.gpus, told))
    return found
