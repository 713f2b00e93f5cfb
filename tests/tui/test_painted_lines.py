"""Of a line that changes only the cells are painted that do."""

from __future__ import annotations

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from dttui.tui.widgets.painted_lines import MOST_LINES, PaintedLines, differing_cells

RED = Style(color="red")


def strip(*texts: str, style: Style | None = None) -> Strip:
    return Strip([Segment(text, style) for text in texts])


@pytest.mark.parametrize(
    ("after", "cells"),
    [
        (strip("name", " 12%", "end"), None),
        (strip("name", " 13%", "end"), (4, 8)),
        (strip("名a ", " 12%", "end"), (0, 4)),
        (strip("name", " 12%", "END"), (8, 11)),
        (strip("name", " 1", "2%", "end"), (4, 8)),
        (strip("name", " 12%", "end", style=RED), (0, 11)),
        (strip("name", " 12%", "end!"), (0, 12)),
    ],
)
def test_the_cells_that_differ_are_told(after: Strip, cells: tuple[int, int] | None) -> None:
    assert differing_cells(strip("name", " 12%", "end"), after) == cells


def test_a_line_is_painted_again_only_where_its_source_is_another() -> None:
    lines, painted = PaintedLines(), []

    def paint(text: str) -> Strip:
        painted.append(text)
        return strip(text)

    assert lines.get(0, "a", lambda: paint("a")).text == "a"
    assert lines.get(0, "a", lambda: paint("a")).text == "a"
    assert painted == ["a"]
    assert lines.changed(0, "a", lambda: paint("a")) is None
    assert lines.changed(0, "b", lambda: paint("b")) == (0, 1)
    assert lines.get(0, "b", lambda: paint("b")).text == "b"
    assert painted == ["a", "b"]
    lines.clear()
    assert lines.changed(0, "b", lambda: paint("b")) == (0, 1)


def test_no_more_lines_are_kept_than_some_screens_have() -> None:
    lines, painted = PaintedLines(), []

    def paint() -> Strip:
        painted.append(1)
        return strip("x")

    for line in range(MOST_LINES + 1):
        lines.get(line, "a", paint)
    lines.get(0, "a", paint)
    assert len(painted) == MOST_LINES + 2
