"""The nodes of a running job with a cell a rank: Line API, and only what changed is painted again."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from dttui.tui.widgets.node_row import Grid, NodeRow, Part, Piece, heading, height_of, lines_of

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

    @property
    def content_height(self) -> int:
        """Lines that all rows take."""
        return self._tops[-1]

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
        segments = [Segment(text, ground + self._ink(part)) for text, part in pieces]
        return Strip(segments).adjust_cell_length(self.size.width, ground)

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

    def _ink(self, part: Part | str) -> Style:
        name = part.value if isinstance(part, Part) else part
        return self.get_component_rich_style(f"node-grid--{name}", partial=True)
