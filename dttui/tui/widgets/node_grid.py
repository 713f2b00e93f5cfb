"""The nodes of a running job with a cell a rank: Line API, and only what changed is painted again."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import ClassVar

from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from dttui.tui.widgets.cells import Part, Piece, painted
from dttui.tui.widgets.node_row import Grid, NodeRow, heading, height_of, lines_of

_STATES = ("waiting", "starting", "running", "stopping", "succeeded", "failed", "cancelled", "unknown")


class NodeGrid(ScrollView, can_focus=True):
    """Shows rows in the order it is given."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "node-grid--row",
        *(f"node-grid--{part.value}" for part in Part),
        *(f"node-grid--state-{state}" for state in _STATES),
    }

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._rows: tuple[NodeRow, ...] = ()
        self._grid = Grid.for_rows((), 80)
        self._heading: list[list[Piece]] = []
        self._tops: list[int] = [0]

    def set_rows(self, rows: tuple[NodeRow, ...]) -> None:
        """Take over all rows."""
        if rows == self._rows:
            return
        self._rows = rows
        self._lay_out()

    def render_line(self, y: int) -> Strip:
        """Return one line of what can be seen."""
        line = y + self.scroll_offset.y
        ground = self.get_component_rich_style("node-grid--row")
        if line >= self._tops[-1]:
            return Strip.blank(self.size.width, ground)
        if line < self._tops[0]:
            pieces = self._heading[line]
        else:
            index = bisect_right(self._tops, line) - 1
            pieces = lines_of(self._rows[index], self._grid)[line - self._tops[index]]
        return painted(self, "node-grid", pieces, ground, self.size.width)

    def on_resize(self) -> None:
        """Lay the cells out anew."""
        self._lay_out()

    def _lay_out(self) -> None:
        self._grid = Grid.for_rows(self._rows, self.size.width or 80)
        self._heading = heading(self._grid)
        self._tops = list(accumulate((height_of(row, self._grid) for row in self._rows), initial=len(self._heading)))
        self.styles.height = max(1, self._tops[-1])
        self.virtual_size = Size(self.size.width, self._tops[-1])
        self.refresh()
