"""From the report of a bench to what its screen shows: series, their stretches by regime, and a table of one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from dttui.app import BenchReport, BenchRow, Regime
from dttui.compose import HEADER, regime_name, row_cells
from dttui.i18n import _
from dttui.spec import format_bytes
from dttui.tui.rows import line
from dttui.tui.widgets.cells import fit
from dttui.tui.widgets.plot_area import Curves, Stroke
from dttui.tui.widgets.plot_axes import Begin

COLOURS: Mapping[Regime, str] = {"latency": "plot-other", "rising": "plot-loss", "link": "plot-speed"}
"""Of each regime, a theme variable."""
GAP = 2
_LEFT_OUT = ("type", "count", "wrong", "algbw", "op", "algorithm")
"""Columns that give way to a narrow screen, the first one first; what they say of one series is in its name."""
_AT_LEFT = ("type", "op", "algorithm", "regime")
_BETWEEN = " ↔ "
BUSBW = "busbw"
"""The word of nccl-tests for the bus bandwidth."""


@dataclass(frozen=True)
class BenchSeries:
    """The rows of one operation at one place."""

    where: tuple[str, ...]
    op: str
    algorithm: str
    rows: tuple[BenchRow, ...]
    is_slow: bool
    """Whether a finding names it."""

    @property
    def key(self) -> str:
        """What tells it from others."""
        return "\n".join((*self.where, self.op, self.algorithm))

    def named(self, width: int) -> str:
        """Return where, or what, in so many cells, with as much of each host's name as of the other's."""
        if len(self.where) > 1:
            room = (width - len(_BETWEEN)) // 2
            return _BETWEEN.join(_cut(line(name), room) for name in self.where)
        if self.where:
            return _cut(line(self.where[0]), width)
        return self.op if self.algorithm == "native" else f"{self.op} ({self.algorithm})"

    @property
    def heading(self) -> str:
        """Return what it is one of."""
        return (_("all ranks together"), _("inside hosts, all_reduce"), _("between hosts"))[len(self.where)]

    @property
    def best(self) -> float:
        """The greatest bus bandwidth, bytes a second."""
        return max(row.bus_bandwidth for row in self.rows)


def series_of(report: BenchReport) -> list[BenchSeries]:
    """Return what was measured, as it was begun: pairs, insides, all ranks together."""
    slow = {(place.what, place.names) for place in report.slow}
    found = []
    for (where, op, algorithm), rows in groupby(report.rows, lambda row: (row.where, row.op, row.algorithm)):
        if len(where) > 1:
            ends = [where, *((name,) for name in where)]
            is_slow = any((what, end) in slow for what in ("bandwidth", "latency") for end in ends)
        else:
            is_slow = ("inside", where) in slow
        found.append(BenchSeries(where, op, algorithm, tuple(rows), is_slow))
    return found


def heading_line(heading: str, width: int) -> Content:
    """Return what series below are, in so many cells, and the word of nccl-tests for their numbers."""
    return Content.styled(f"{fit(heading, width - len(BUSBW) - 1)} {BUSBW}", "$muted")


def series_line(series: BenchSeries, width: int) -> Content:
    """Return a series in so many cells: its name, and the greatest bus bandwidth."""
    best = bandwidth_text(series.best)
    mark = "⚠ " if series.is_slow else "  "
    room = max(width - len(best) - len(mark) - 1, 4)
    name = fit(series.named(room), room)
    colour = "$finding-warning" if series.is_slow else "$muted"
    return Content.assemble((mark, "bold $finding-warning"), name, " ", (best, colour))


def bandwidth_text(bandwidth: float) -> str:
    """Return bytes a second as a person reads them, of three digits."""
    for unit, name in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if bandwidth >= unit:
            return f"{bandwidth / unit:.3g} {name}"
    return f"{bandwidth:.3g} B/s"


def time_text(seconds: float) -> str:
    """Return seconds in the unit of their size, of four digits."""
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.4g} {name}"
    return f"{seconds * 1e6:.4g} µs"


def bandwidth_curves(rows: Sequence[BenchRow]) -> Curves:
    """Return the curve of bus bandwidth over log2 of the size, a stretch for each regime that it goes through."""
    found: list[Stroke] = []
    for regime, group in groupby(rows, lambda row: row.regime):
        points = [(math.log2(row.size_bytes), row.bus_bandwidth) for row in group]
        before = found[-1].points[-1:] if found else []
        found.append(Stroke(COLOURS[regime], [*before, *points]))
    sizes = tuple((math.log2(row.size_bytes), format_bytes(row.size_bytes)) for row in rows)
    borders = [stroke.points[0][0] for stroke in found[1:]]
    return Curves(found, Begin.ZERO, unit="B/s", ticks=sizes, borders=borders)


def legend() -> Content:
    """Return the names of the regimes in their colours."""
    names = [Content.styled(f"━ {regime_name(regime)}", f"${colour}") for regime, colour in COLOURS.items()]
    return Content("  ").join(names)


def table(rows: Sequence[BenchRow], width: int) -> Content:
    """Return the rows under the words of nccl-tests, in so many columns as there is room for."""
    lines = [list(HEADER), *map(_row_cells, rows)]
    shown = list(range(len(HEADER)))
    sizes = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for name in _LEFT_OUT:
        if sum(sizes[index] for index in shown) + GAP * (len(shown) - 1) > width:
            shown.remove(HEADER.index(name))
    told = []
    for number, cells in enumerate(lines):
        parts = [
            Content(fit(line(cells[index]), sizes[index], right=HEADER[index] not in _AT_LEFT)) for index in shown[:-1]
        ]
        last = Content(cells[shown[-1]])
        if number:
            last = last.stylize(f"${COLOURS[rows[number - 1].regime]}")
        text = Content(" " * GAP).join([*parts, last])
        told.append(text if number else text.stylize("$muted"))
    return Content("\n").join(told)


def _row_cells(row: BenchRow) -> list[str]:
    """Return a row with units that keep numbers short: no program reads it here."""
    cells = dict(zip(HEADER, row_cells(row), strict=True))
    short = {
        "time": time_text(row.seconds),
        "algbw": bandwidth_text(row.algorithm_bandwidth),
        "busbw": bandwidth_text(row.bus_bandwidth),
    }
    return list((cells | short).values())


def _cut(text: str, width: int) -> str:
    """Return a name in at most so many cells, cut in its middle: hosts of a cluster often differ at the end alone."""
    if cell_len(text) <= width:
        return text
    head, tail = width // 2, (width - 1) // 2
    return f"{set_cell_size(text, head)}…{set_cell_size(text[::-1], tail)[::-1]}"
