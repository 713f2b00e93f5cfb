"""The nodes of a running job with a cell a rank: Line API, and only what changed is painted again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import ClassVar

from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from dttui.tui.messages import NodesScrolled
from dttui.tui.widgets.cells import Part, Piece, painted
from dttui.tui.widgets.node_row import Grid, NodeRow, heading, height_of, lines_of
from dttui.tui.widgets.painted_lines import PaintedLines

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
        self._painted = PaintedLines()

    def set_rows(self, rows: tuple[NodeRow, ...]) -> None:
        """Take over all rows."""
        if rows == self._rows:
            return
        before = self._grid, self._heading, self._tops
        self._rows = rows
        self._lay_out()
        if before != (self._grid, self._heading, self._tops):
            self.refresh()
            return
        top = self.scroll_offset.y
        for line in range(top, min(top + self.size.height, self._tops[-1])):
            cells = self._painted.changed(line, *self._source(line))
            if cells is not None:
                self.refresh(Region(cells[0], line - top, cells[1] - cells[0], 1))

    @property
    def shown(self) -> range:
        """Places of the rows that can be seen."""
        top = self.scroll_offset.y
        return range(max(0, bisect_right(self._tops, top) - 1), bisect_right(self._tops, top + self.size.height))

    def watch_scroll_y(self, before: float, now: float) -> None:
        """Tell that other rows can be seen."""
        super().watch_scroll_y(before, now)
        self.post_message(NodesScrolled())

    def notify_style_update(self) -> None:
        """Paint in other colours."""
        super().notify_style_update()
        self._painted.clear()

    def render_line(self, y: int) -> Strip:
        """Return one line of what can be seen."""
        line = y + self.scroll_offset.y
        if line >= self._tops[-1]:
            return Strip.blank(self.size.width, self.get_component_rich_style("node-grid--row"))
        return self._painted.get(line, *self._source(line))

    def on_resize(self) -> None:
        """Lay the cells out anew."""
        self._lay_out()
        self.refresh()

    def _source(self, line: int) -> tuple[object, Callable[[], Strip]]:
        """Return what a line is painted from, and what paints it."""
        index, width = bisect_right(self._tops, line) - 1, self.size.width
        row = self._rows[index] if index >= 0 else None

        def paint() -> Strip:
            pieces = self._heading[line] if row is None else lines_of(row, self._grid)[line - self._tops[index]]
            return painted(self, "node-grid", pieces, self.get_component_rich_style("node-grid--row"), width)

        return (row, line - self._tops[max(index, 0)], self._grid, width), paint

    def _lay_out(self) -> None:
        self._grid = Grid.for_rows(self._rows, self.size.width or 80)
        self._heading = heading(self._grid)
        self._tops = list(accumulate((height_of(row, self._grid) for row in self._rows), initial=len(self._heading)))
        self.styles.height = max(1, self._tops[-1])
        self.virtual_size = Size(self.size.width, self._tops[-1])
