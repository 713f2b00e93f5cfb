"""A list of rows that each have a key: order, cursor, mouse and scrolling. Line API: thousands scroll as ten do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Offset, Region, Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView

from dttui.tui.commands import N_


class RowList(ScrollView, can_focus=True):
    """Shows rows in an order; what they look like, and what is done with them, its subclass says."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", N_("up"), show=False, id="rows.up"),
        Binding("down", "move(1)", N_("down"), show=False, id="rows.down"),
        Binding("pageup", "page(-1)", N_("page up"), show=False, id="rows.page-up"),
        Binding("pagedown", "page(1)", N_("page down"), show=False, id="rows.page-down"),
        Binding("home", "go(0)", N_("first"), show=False, id="rows.first"),
        Binding("end", "go(-1)", N_("last"), show=False, id="rows.last"),
    ]
    HEAD_LINES: ClassVar[int] = 0
    """Above the rows, which do not scroll."""

    cursor: reactive[int] = reactive(0, repaint=False)
    """Position in the shown order."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._order: list[str] = []

    @property
    def highlighted(self) -> str | None:
        """Key of the row under the cursor."""
        return self._order[self.cursor] if self.cursor < len(self._order) else None

    @property
    def shown(self) -> Sequence[str]:
        """Keys in the order in which they are shown."""
        return self._order

    @property
    def lines_a_row(self) -> int:
        """How many lines a row takes."""
        return 1

    def highlight_changed(self) -> None:
        """Tell that another row is under the cursor, or none."""

    def show(self, order: Sequence[str]) -> None:
        """Show these rows in this order; the cursor stays on its row where that is still shown."""
        before = self.highlighted
        self._order = list(order)
        self.cursor = self._order.index(before) if before in self._order else 0
        self.resize_rows()
        if self.highlighted != before:
            self.highlight_changed()

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self.go_to(self.cursor + rows)

    def action_page(self, pages: int) -> None:
        """Move the cursor by what fits on the screen."""
        self.go_to(self.cursor + pages * max(1, self.size.height // self.lines_a_row - 1))

    def action_go(self, index: int) -> None:
        """Move the cursor to the first or the last row."""
        self.go_to(index if index >= 0 else len(self._order) - 1)

    def row_at(self, offset: Offset) -> int | None:
        """Return the position of the row at a place of what can be seen; `None` where there is none."""
        line = offset.y - self.HEAD_LINES
        index = (line + self.scroll_offset.y) // self.lines_a_row
        return index if line >= 0 and index < len(self._order) else None

    def go_to(self, index: int) -> None:
        """Move the cursor to a row."""
        index = min(max(index, 0), len(self._order) - 1)
        if index < 0 or index == self.cursor:
            return
        before, self.cursor = self.cursor, index
        self.repaint_row(before)
        self.repaint_row(index)
        self._reveal()
        self.highlight_changed()

    def repaint_row(self, index: int) -> None:
        """Draw one row anew."""
        top = self.HEAD_LINES + index * self.lines_a_row - self.scroll_offset.y
        if top >= self.HEAD_LINES:
            self.refresh(Region(0, top, self.size.width, self.lines_a_row))

    def visible_rows(self) -> range:
        """Return the positions of the rows that can be seen."""
        first = self.scroll_offset.y // self.lines_a_row
        return range(first, min(len(self._order), first + self.size.height // self.lines_a_row + 2))

    def resize_rows(self) -> None:
        """Take the room that the rows now need."""
        self.virtual_size = Size(self.size.width, self.HEAD_LINES + len(self._order) * self.lines_a_row)
        self.refresh()
        self.call_after_refresh(self._reveal)

    def on_resize(self) -> None:
        """Lay out for the new width."""
        self.resize_rows()

    def watch_show_vertical_scrollbar(self) -> None:
        """Lay out anew when the scroll bar takes room, or gives it back."""
        self.call_after_refresh(self.resize_rows)

    def on_focus(self, _event: events.Focus) -> None:
        """Repaint the cursor."""
        self.refresh()

    def on_blur(self, _event: events.Blur) -> None:
        """Repaint the cursor."""
        self.refresh()

    def _reveal(self) -> None:
        top = self.cursor * self.lines_a_row
        region = Region(0, top, self.size.width, self.lines_a_row + self.HEAD_LINES)
        self.scroll_to_region(region, animate=False, force=True)
