"""One plot as lines of text: a title, the axis of values, curves of braille dots, the axis of positions. Pure."""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len

from dttui.tui.widgets.cells import Piece, fit
from dttui.tui.widgets.plot_area import AXIS, BELOW, Points, Stroke, area_lines
from dttui.tui.widgets.plot_axes import Begin, Scale, extremes, position_axis, value_axis

LEAST_ROWS = 7
"""Of a plot with all that belongs to it."""
_AROUND = 1 + BELOW
"""Rows that are no plot: title, axis, labels."""
_LEGEND = 16
"""Cells that are to be left for it at least."""
AHEAD = 0.25
"""How far an earlier curve goes on beyond this one, as a share of what there is of it."""
TITLE, CHOSEN, VALUE = "title", "chosen", "value"
GHOST, RAW, CURVE = "ghost", "raw", "curve"
"""What a piece of a line is, for its colour; the last two are followed by the plot's own, `curve-loss`."""


class Plot(NamedTuple):
    """One curve, and what is drawn around it."""

    name: str
    colour: str
    """What it is of, for its colour."""
    title: str
    points: Points
    is_whole: bool
    """Whether positions are whole numbers."""
    unit: str = ""
    """Symbol of a rate's, where the title does not name it."""
    begin: Begin = Begin.ANYWHERE
    smooth: Points = ()
    """The same without its noise; empty where that is not drawn."""
    ghost: Points = ()
    """The same of the run before."""
    newest: str = ""
    """Its newest value, in words."""


def plot_lines(plot: Plot, width: int, height: int, *, is_log: bool, is_chosen: bool, legend: str) -> list[list[Piece]]:
    """Return the lines of a plot, each exactly so wide.

    Args:
        plot: what is drawn.
        width: in cells.
        height: in rows; less than `LEAST_ROWS` shows less of it.
        is_log: whether the axis of values is logarithmic, where there is anything above nought.
        is_chosen: whether keys are about this one.
        legend: what else is to be said in its title, where there is room.
    """
    rows = max(1, height - _AROUND)
    ghost = _near(plot)
    bounds = extremes([plot.points], is_log=is_log) or extremes([plot.points], is_log=False)
    if bounds is None:
        return [[(" " * width, AXIS)] for _row in range(height)]
    upward = value_axis(*_with_ghost(bounds, ghost, is_log=is_log), rows, plot.begin, is_log=is_log, unit=plot.unit)
    places = [place for place, _value in (*plot.points, *ghost)]

    def across(columns: int) -> Scale:
        return position_axis(min(places), max(places), columns, is_whole=plot.is_whole)

    title = _title(plot, width, is_log=upward.is_log, is_chosen=is_chosen, legend=legend)
    lines = [title, *area_lines(_strokes(plot, ghost), upward, across, width, rows)]
    return lines[:height] if height > _AROUND else lines[: max(0, height)]


def _near(plot: Plot) -> Points:
    """Return of the run before what lies no more than a little ahead of this one."""
    if not plot.ghost or not plot.points:
        return ()
    first, last = min(place for place, _value in plot.points), max(place for place, _value in plot.points)
    end = last + AHEAD * (last - first)
    return [point for point in plot.ghost if first <= point[0] <= end]


def _with_ghost(bounds: tuple[float, float], ghost: Points, *, is_log: bool) -> tuple[float, float]:
    """Return the least and the greatest value with those of the run before, as far as they are not much farther off."""
    low, high = bounds
    found = extremes([ghost], is_log=is_log)
    if found is None:
        return bounds
    span = (high - low) or abs(high) / 2
    least = low / 10 if is_log else low - span
    return max(min(low, found[0]), least), min(max(high, found[1]), high + span)


def _strokes(plot: Plot, ghost: Points) -> list[Stroke]:
    raw = RAW if plot.smooth else CURVE
    return [
        Stroke(GHOST, ghost, is_dashed=True),
        Stroke(f"{raw}-{plot.colour}", plot.points),
        Stroke(f"{CURVE}-{plot.colour}", plot.smooth),
    ]


def _title(plot: Plot, width: int, *, is_log: bool, is_chosen: bool, legend: str) -> list[Piece]:
    mark = "▸" if is_chosen else "─"
    title = f"{mark} {plot.title}" + (" · log" if is_log else "")
    value = f" {plot.newest} " if plot.newest else ""
    room = width - cell_len(value) - 2
    title = fit(title, max(0, min(cell_len(title), room - 1)))
    free = room - cell_len(title) - 6
    legend = f"  ┄ {fit(legend, min(cell_len(legend), free))}" if plot.ghost and legend and free >= _LEGEND else ""
    rest = max(0, room - cell_len(title) - cell_len(legend) - 1)
    return [
        (title, CHOSEN if is_chosen else TITLE),
        (legend, GHOST),
        (" " + "─" * rest, AXIS),
        (value, VALUE),
        ("  ", AXIS),
    ]
