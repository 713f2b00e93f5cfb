"""The GPUs of one host, a line each: how busy, full and warm, who uses them, and which of them the job names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtagent.protocol.telemetry import GpuSample
from textual.content import Content

from dttui.i18n import _
from dttui.planning import Choice
from dttui.sanitize import clean_line
from dttui.tui import symbols
from dttui.tui.widgets.cells import bar, fit, linked

if TYPE_CHECKING:
    from dttui.app import EnvironmentStatus, Occupant

MOST_GPUS = 16
"""Lines; of the rest only the number is."""
_BAR, _NARROW_BAR = 10, 6
_NAME, _TYPE = 26, 12
_USER = 16

Pieces = list["Content | tuple[str, str] | str"]


@dataclass(frozen=True)
class KnownGpu:
    """A GPU of a host, with what is known of it."""

    index: int
    name: str = ""
    """As its driver has it."""
    kind: str = ""
    """As people call it."""
    reading: GpuSample | None = None
    user: str = ""
    """Who has it; empty where nobody has."""


def known_gpus(status: EnvironmentStatus) -> list[KnownGpu]:
    """Return the GPUs of which the host itself has told."""
    sample, facts = status.sample, status.facts
    names = {gpu.index: gpu.name for gpu in facts.gpus} if facts is not None else {}
    read = {gpu.index: gpu for gpu in sample.gpus} if sample is not None else {}
    users = _users(status.occupants)
    known = Choice(status.environment, facts)
    kinds = dict(zip(known.gpu_numbers, known.gpu_types, strict=False))
    return [
        KnownGpu(index, names.get(index, ""), kinds.get(index, ""), read.get(index), users.get(index, ""))
        for index in sorted({*names, *read})
    ]


def gpu_lines(status: EnvironmentStatus, ticked: Collection[int] | None = None) -> Content:
    """Return a head and a line a GPU; nothing where nothing is known of any.

    Args:
        status: of the host.
        ticked: numbers of the GPUs that the job names; a click on the mark changes that. `None` where none can be.
    """
    gpus = known_gpus(status)
    if not gpus:
        return Content("")
    columns = (
        (" " * 3, 4 if ticked is None else 6),
        (_("GPU"), _NAME),
        (_("busy"), _BAR + 7),
        (_("memory"), _BAR + 14),
        (_("warm"), 7),
        (_("power"), 8),
        (_("used by"), _USER),
    )
    lines = [Content.styled("".join(fit(text, width) for text, width in columns), "$muted")]
    for gpu in gpus[:MOST_GPUS]:
        mark = Content("")
        if ticked is not None:
            mark = linked(Content.assemble(tick_mark(gpu.index in ticked)), f"screen.tick_gpu({gpu.index})")
        lines.append(Content.assemble(mark, _line(gpu)))
    if len(gpus) > MOST_GPUS:
        lines.append(Content.styled(_("… and {count} more").format(count=len(gpus) - MOST_GPUS), "$muted"))
    return Content("\n").join(lines)


def tick_head(*, names: bool) -> Content:
    """Return what stands above `tick_line`; `names` where the GPUs are of several types."""
    columns = (
        ("", 6),
        *(((_("GPU"), _TYPE),) if names else ()),
        (_("busy"), _NARROW_BAR + 6),
        (_("memory"), _NARROW_BAR + 14),
        (_("used by"), _USER),
    )
    return Content.styled("".join(fit(text, width) for text, width in columns), "$muted")


def tick_line(gpu: KnownGpu, *, is_ticked: bool, names: bool) -> Content:
    """Return a GPU as a line that can be ticked, for a terminal of 80 columns."""
    pieces: Pieces = [tick_mark(is_ticked), (f"{gpu.index:>3} ", "bold")]
    if names:
        pieces.append(fit(clean_line(gpu.kind), _TYPE))
    if gpu.reading is None:
        return Content.assemble(*pieces, (_("no reading"), "$muted"))
    return Content.assemble(*pieces, *_load(gpu.reading, _NARROW_BAR, 6), _user(gpu))


def _line(gpu: KnownGpu) -> Content:
    pieces: Pieces = [(f"{gpu.index:>3} ", "bold"), fit(clean_line(gpu.name), _NAME)]
    reading = gpu.reading
    if reading is None:
        return Content.assemble(*pieces, (_("no reading"), "$muted"))
    pieces += _load(reading, _BAR, 7)
    pieces.append(fit("" if reading.temperature_c is None else f"{reading.temperature_c}°C", 7))
    pieces.append(fit("" if reading.power_w is None else f"{reading.power_w:.0f} W", 8))
    return Content.assemble(*pieces, _user(gpu))


def _load(reading: GpuSample, width: int, percent_width: int) -> Pieces:
    """Return how busy a GPU is and how full."""
    busy = reading.utilization_percent
    used, total = reading.memory_used_mib, reading.memory_total_mib
    told = f" {symbols.mebibytes(used)} / {symbols.mebibytes(total)}" if used is not None and total else ""
    return [
        _bar(None if busy is None else busy / 100, width),
        fit("" if busy is None else f" {busy}%", percent_width),
        _bar(used / total if used is not None and total else None, width),
        fit(told, 14),
    ]


def tick_mark(is_ticked: bool) -> tuple[str, str]:
    """Return the mark before what can be ticked, and its style."""
    return ("☑ ", "bold $ticked") if is_ticked else ("☐ ", "$muted")


def _user(gpu: KnownGpu) -> tuple[str, str]:
    return (gpu.user, "$environment-busy") if gpu.user else (_("free"), "$environment-idle")


def _bar(share: float | None, width: int) -> Content:
    if share is None:
        return Content(" " * width)
    full, empty = bar(share, width)
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
