"""One plot as lines of text: a title, the axis of values, curves of braille dots, the axis of positions. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from dttui.tui.widgets.braille import DOTS_ACROSS, DOTS_DOWN, Canvas, Dot
from dttui.tui.widgets.cells import Piece, fit
from dttui.tui.widgets.plot_axes import Begin, Scale, extremes, position_axis, value_axis

Points = Sequence[tuple[float, float]]
"""(position, value), in order."""

LEAST_ROWS = 7
"""Of a plot with all that belongs to it."""
_AROUND = 3
"""Rows that are no plot: title, axis, labels."""
_LEGEND = 16
"""Cells that are to be left for it at least."""
AHEAD = 0.25
"""How far an earlier curve goes on beyond this one, as a share of what there is of it."""
AXIS, LABEL, TITLE, CHOSEN, VALUE = "axis", "label", "title", "chosen", "value"
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
    labels = _by_row(upward, rows)
    gutter = max(map(cell_len, labels.values()), default=1) + 1
    columns = max(1, width - gutter - 2)
    places = [place for place, _value in (*plot.points, *ghost)]
    across = position_axis(min(places), max(places), columns, is_whole=plot.is_whole)
    canvas, pens = _drawn(plot, ghost, across, upward, columns, rows)
    lines = [_title(plot, width, is_log=upward.is_log, is_chosen=is_chosen, legend=legend)]
    for row in range(rows):
        label = labels.get(row)
        head = (fit(label or "", gutter - 1, right=True), LABEL), ("│" if label is None else "┤", AXIS)
        curve = [(text, pens[pen]) for text, pen in canvas.runs(row)]
        lines.append(_cut([*head, *curve, ("  ", AXIS)], width))
    lines += _below(across, gutter, columns, width)
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


def _drawn(
    plot: Plot, ghost: Points, across: Scale, upward: Scale, columns: int, rows: int
) -> tuple[Canvas, Sequence[str]]:
    canvas = Canvas(columns, rows)
    pens = (AXIS, GHOST, f"{RAW}-{plot.colour}", f"{CURVE}-{plot.colour}")
    canvas.draw(_dots(ghost, across, upward, columns, rows), 1, is_dashed=True)
    canvas.draw(_dots(plot.points, across, upward, columns, rows), 2 if plot.smooth else 3)
    canvas.draw(_dots(plot.smooth, across, upward, columns, rows), 3)
    return canvas, pens


def _dots(points: Points, across: Scale, upward: Scale, columns: int, rows: int) -> Iterator[Dot | None]:
    """Yield where points are; `None` where one has no place, and where a job has gone back."""
    width, height = columns * DOTS_ACROSS - 1, rows * DOTS_DOWN - 1
    before = -math.inf
    for place, value in points:
        right, up = across.share(place), upward.share(value)
        if place < before or right is None or up is None:
            yield None
        if right is not None and up is not None:
            yield round(right * width), round((1 - up) * height)
        before = place


def _by_row(upward: Scale, rows: int) -> dict[int, str]:
    """Return the labels of an axis by the row that they stand in."""
    found: dict[int, str] = {}
    for place, label in upward.ticks:
        share = upward.share(place)
        if share is not None:
            found.setdefault(round((1 - share) * (rows - 1)), label)
    return found


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


def _cut(pieces: list[Piece], width: int) -> list[Piece]:
    """Return a line that ends where the plot does, however wide its labels are."""
    found: list[Piece] = []
    for text, part in pieces:
        found.append((text[:width], part))
        width -= len(found[-1][0])
    return found


def _below(across: Scale, gutter: int, columns: int, width: int) -> list[list[Piece]]:
    """Return the axis below, and its labels, of which none is cut and none touches another."""
    axis, labels, used = ["─"] * columns, [" "] * (gutter + columns), 0
    for place, label in across.ticks:
        share = across.share(place)
        if share is None:
            continue
        column = round(share * (columns - 1))
        start = min(gutter + column - len(label) // 2, gutter + columns - len(label))
        if start < max(used, 0):
            continue
        axis[column] = "┬"
        labels[start : start + len(label)] = label
        used = start + len(label) + 1
    head = " " * (gutter - 1) + "└"
    return [[(fit(head + "".join(axis), width), AXIS)], [(fit("".join(labels), width), LABEL)]]
