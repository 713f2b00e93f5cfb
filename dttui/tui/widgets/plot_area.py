"""Curves between two axes as lines of text: labels at the left and below, curves of braille dots, letters. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from dttui.tui.widgets.braille import DOTS_ACROSS, DOTS_DOWN, Canvas, Dot
from dttui.tui.widgets.cells import Piece, fit
from dttui.tui.widgets.plot_axes import Begin, Scale, Ticks, extremes, position_axis, value_axis

Points = Sequence[tuple[float, float]]
"""(position, value), in order."""

AXIS, LABEL = "axis", "label"
"""What a piece of a line is, for its colour, if it belongs to no curve."""
BELOW = 2
"""Rows of the axis below and its labels."""
_BETWEEN = 2
"""Cells between two labels below, and between two letters, at least."""
_AT_RIGHT = 2
"""Cells that stay free beside a plot."""


class Stroke(NamedTuple):
    """One curve."""

    part: str
    """What its pieces of a line are, for its colour."""
    points: Points
    is_dashed: bool = False
    letter: str = ""
    """That stands near its end; empty for none."""


class Curves(NamedTuple):
    """Curves that share two axes, which are as long as their values."""

    strokes: Sequence[Stroke]
    """Later ones are drawn over earlier ones."""
    begin: Begin
    unit: str = ""
    """Symbol of a rate's."""
    ticks: Ticks = ()
    """Places and labels on the axis below, at even distances; empty for round whole numbers."""
    borders: Sequence[float] = ()
    """Places of lines down behind the curves."""


def curve_lines(curves: Curves, width: int, height: int) -> list[list[Piece]]:
    """Return the lines of curves, each exactly so wide; none where they have no value that has a place."""
    rows = max(1, height - BELOW)
    bounds = extremes([stroke.points for stroke in curves.strokes], is_log=False)
    if bounds is None:
        return []
    upward = value_axis(*bounds, rows, curves.begin, unit=curves.unit)
    places = [place for stroke in curves.strokes for place, _value in stroke.points]
    low, high = min(places), max(places)

    def across(columns: int) -> Scale:
        if not curves.ticks:
            return position_axis(low, high, columns, is_whole=True)
        widest = max(cell_len(label) for _place, label in curves.ticks)
        most = max(1, columns // (widest + _BETWEEN))
        return Scale(low, high, curves.ticks[:: math.ceil(len(curves.ticks) / most)])

    borders = [Stroke(AXIS, [(place, upward.low), (place, upward.high)]) for place in curves.borders]
    return area_lines([*borders, *curves.strokes], upward, across, width, rows)[: max(0, height)]


def area_lines(
    strokes: Sequence[Stroke], upward: Scale, across_in: Callable[[int], Scale], width: int, rows: int
) -> list[list[Piece]]:
    """Return so many rows with curves, and `BELOW` more, each exactly so wide.

    Args:
        strokes: later ones are drawn over earlier ones.
        upward: axis of values.
        across_in: returns the axis of positions in so many columns.
        width: in cells.
        rows: of the curves.
    """
    labels = _by_row(upward, rows)
    gutter = max(map(cell_len, labels.values()), default=1) + 1
    columns = max(1, width - gutter - _AT_RIGHT)
    across = across_in(columns)
    canvas = _drawn(strokes, across, upward, columns, rows)
    parts = [AXIS, *(stroke.part for stroke in strokes)]
    lines = []
    for row in range(rows):
        label = labels.get(row)
        head = (fit(label or "", gutter - 1, right=True), LABEL), ("│" if label is None else "┤", AXIS)
        curve = [(text, parts[pen]) for text, pen in canvas.runs(row)]
        lines.append(_cut([*head, *curve, (" " * _AT_RIGHT, AXIS)], width))
    return lines + _below(across, gutter, columns, width)


def _drawn(strokes: Sequence[Stroke], across: Scale, upward: Scale, columns: int, rows: int) -> Canvas:
    """Return what is drawn; the pen of a curve is its number, from one on."""
    canvas = Canvas(columns, rows)
    letters: list[tuple[int, int]] = []
    drawn = [list(_dots(stroke.points, across, upward, columns, rows)) for stroke in strokes]
    for pen, (stroke, dots) in enumerate(zip(strokes, drawn, strict=True), 1):
        canvas.draw(dots, pen, is_dashed=stroke.is_dashed)
    for pen, (stroke, dots) in enumerate(zip(strokes, drawn, strict=True), 1):
        cell = _free_cell(dots, letters) if stroke.letter else None
        if cell is not None:
            canvas.write(*cell, stroke.letter, pen)
            letters.append(cell)
    return canvas


def _free_cell(dots: Sequence[Dot | None], taken: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the cell of a curve nearest to its end that touches no other letter; `None` where it has no dot."""
    cells = [(dot[0] // DOTS_ACROSS, dot[1] // DOTS_DOWN) for dot in reversed(dots) if dot is not None]
    for column, row in cells:
        if not any(abs(column - other) < _BETWEEN and row == line for other, line in taken):
            return column, row
    return cells[0] if cells else None


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
