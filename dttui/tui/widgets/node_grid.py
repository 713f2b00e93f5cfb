"""The nodes of a running job with a cell a rank: Line API, and only what changed is painted again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from dttui.tui.commands import N_
from dttui.tui.messages import NodesScrolled
from dttui.tui.widgets.cells import Part, Piece, painted
from dttui.tui.widgets.node_row import TREND_PART, Grid, NodeRow, heading, height_of, lines_of
from dttui.tui.widgets.painted_lines import PaintedLines

_STATES = ("waiting", "starting", "running", "stopping", "succeeded", "failed", "cancelled", "unknown")


class NodeGrid(ScrollView, can_focus=True):
    """Shows rows in the order it is given, with a cursor on one of them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", N_("its logs"), show=False, id="nodes.logs", tooltip=N_("Show the logs of the node")),
    ]

    @dataclass
    class Opened(Message):
        """A person wants to see more of a row."""

        row: int

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "node-grid--row",
        "node-grid--cursor",
        f"node-grid--{TREND_PART}",
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
        self._height = 0
        self.cursor = 0
        """Row that keys are about."""
        self.trends: Callable[[int, int], Sequence[int | None]] = lambda row, slot: ()
        """The newest loads of a slot in percent, by the row and by its place there."""

    def set_rows(self, rows: tuple[NodeRow, ...]) -> None:
        """Take over all rows."""
        if rows == self._rows:
            return
        before = self._grid, self._heading, self._tops
        self._rows = rows
        self.cursor = min(self.cursor, max(0, len(rows) - 1))
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

    def use_height(self, height: int) -> None:
        """Take up to so many lines where that shows more of each rank."""
        if height != self._height:
            self._height = height
            self._lay_out()

    def render_line(self, y: int) -> Strip:
        """Return one line of what can be seen."""
        line = y + self.scroll_offset.y
        if line >= self._tops[-1]:
            return Strip.blank(self.size.width, self.get_component_rich_style("node-grid--row"))
        return self._painted.get(line, *self._source(line))

    def action_open(self) -> None:
        """Ask for more of the row under the cursor."""
        if self._rows:
            self.post_message(self.Opened(self.cursor))

    def action_scroll_up(self) -> None:
        """Go to the row above."""
        self._go(self.cursor - 1)

    def action_scroll_down(self) -> None:
        """Go to the row below."""
        self._go(self.cursor + 1)

    def action_page_up(self) -> None:
        """Go up by what can be seen."""
        self._go(self._row_at(self._tops[self.cursor] - self.size.height))

    def action_page_down(self) -> None:
        """Go down by what can be seen."""
        self._go(self._row_at(self._tops[self.cursor] + self.size.height))

    def action_scroll_home(self) -> None:
        """Go to the first row."""
        self._go(0)

    def action_scroll_end(self) -> None:
        """Go to the last row."""
        self._go(len(self._rows) - 1)

    def on_click(self, event: Click) -> None:
        """Go to a row."""
        self._go(self._row_at(event.y + self.scroll_offset.y))

    def on_focus(self) -> None:
        """Show the cursor."""
        self.refresh()

    def on_blur(self) -> None:
        """Show none."""
        self.refresh()

    def _row_at(self, line: int) -> int:
        return bisect_right(self._tops, line) - 1

    def _go(self, row: int) -> None:
        if not self._rows:
            return
        self.cursor = min(max(row, 0), len(self._rows) - 1)
        top, bottom = self._tops[self.cursor], self._tops[self.cursor + 1]
        self.scroll_to_region(
            Region(0, top if self.cursor else 0, 1, bottom - (top if self.cursor else 0)), animate=False
        )
        self.refresh()

    def on_resize(self) -> None:
        """Lay the cells out anew."""
        self._lay_out()
        self.refresh()

    def _source(self, line: int) -> tuple[object, Callable[[], Strip]]:
        """Return what a line is painted from, and what paints it."""
        index, width = bisect_right(self._tops, line) - 1, self.size.width
        row = self._rows[index] if index >= 0 else None
        place = line - self._tops[max(index, 0)]
        is_under_cursor = index == self.cursor and place == 0 and self.has_focus
        slots = len(row.slots) if row is not None and self._grid.trend else 0
        trends = tuple(tuple(self.trends(index, slot)) for slot in range(slots))

        def paint() -> Strip:
            ground = self.get_component_rich_style(f"node-grid--{'cursor' if is_under_cursor else 'row'}")
            pieces = self._heading[line] if row is None else lines_of(row, self._grid, trends.__getitem__)[place]
            return painted(self, "node-grid", pieces, ground, width)

        return (row, place, self._grid, width, is_under_cursor, trends), paint

    def _lay_out(self) -> None:
        self._grid = Grid.for_rows(self._rows, self.size.width or 80, self._height)
        self._heading = heading(self._grid)
        self._tops = list(accumulate((height_of(row, self._grid) for row in self._rows), initial=len(self._heading)))
        self.styles.height = max(1, self._tops[-1])
        self.virtual_size = Size(self.size.width, self._tops[-1])
