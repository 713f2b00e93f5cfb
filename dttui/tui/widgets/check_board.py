"""The board of a preflight: a row a node, a column a check, as wide as the screen allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

LEAST_LONG = 8
"""Cells of a column, without the blank before it, from which it has whole words and units."""


@dataclass(frozen=True)
class CheckCell:
    """One check of one node, as it is shown."""

    text: str
    """Symbol and time, of at most 5 cells."""
    words: str
    """The same where there is room for `LEAST_LONG`."""
    colour: str
    """Name of a theme variable, without `$`."""


@dataclass(frozen=True)
class CheckRow:
    """One node."""

    name: str
    is_master: bool
    cells: tuple[CheckCell, ...]


Widths = Callable[[int, int], tuple[int, int]]
"""Takes the cells of the longest name and of the whole board; returns those of a name and of a column."""


class CheckBoard(Widget):
    """Shows rows in the order it is given, as wide as `widths` says."""

    DEFAULT_CSS = "CheckBoard { height: auto; }"

    def __init__(self, widths: Widths, *, id: str) -> None:
        super().__init__(id=id)
        self._headings: tuple[tuple[str, str], ...] = ()
        self._rows: tuple[CheckRow, ...] = ()
        self._widths = widths

    def show(self, headings: tuple[tuple[str, str], ...], rows: tuple[CheckRow, ...]) -> None:
        """Take over all rows, and of each column a short heading and one of `LEAST_LONG` cells."""
        if (headings, rows) == (self._headings, self._rows):
            return
        is_as_high = len(rows) == len(self._rows)
        self._headings, self._rows = headings, rows
        self.refresh(layout=not is_as_high)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return how many lines the rows take."""
        return len(self._rows) + 1 if self._rows else 0

    def render(self) -> Content:
        """Return the board in lines that fit."""
        if not self._rows:
            return Content("")
        room, column = self._widths(max(cell_len(row.name) for row in self._rows), self.content_size.width)
        is_long = column > LEAST_LONG
        heads = "".join(_cell(word if is_long else short, column) for short, word in self._headings)
        lines = [Content(set_cell_size("", room) + heads).stylize("$muted")]
        for row in self._rows:
            name = Content.styled(_fitted(("★ " if row.is_master else "  ") + row.name, room), "bold")
            cells = [
                Content.styled(_cell(cell.words if is_long else cell.text, column), f"${cell.colour}")
                for cell in row.cells
            ]
            lines.append(Content("").join([name, *cells]))
        return Content("\n").join(lines)


def _cell(text: str, column: int) -> str:
    return " " + _fitted(text, column - 1)


def _fitted(text: str, width: int) -> str:
    """Return the text in exactly so many cells."""
    if cell_len(text) > width:
        text = set_cell_size(text, max(width - 1, 0)) + "…"
    return set_cell_size(text, width)
