"""The list of environments with their checkboxes: Line API, so that thousands scroll as lightly as ten."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from dttui.tui.commands import N_
from dttui.tui.messages import EnvironmentHighlighted, EnvironmentToggled, GpusStepped, MasterChosen
from dttui.tui.widgets.cells import Part, painted
from dttui.tui.widgets.environment_row import Columns, EnvironmentRow, lines_of
from dttui.tui.widgets.painted_lines import PaintedLines


class EnvironmentList(ScrollView, can_focus=True):
    """Shows rows in the order it is given; ticks and master come from outside too."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "environment-list--row",
        "environment-list--ticked",
        "environment-list--cursor",
        *(f"environment-list--{part.value}" for part in Part),
        *(
            f"environment-list--environment-{state}"
            for state in ("connecting", "idle", "busy", "unhealthy", "unreachable")
        ),
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "tick", N_("tick"), id="list.tick", tooltip=N_("Tick the environment, or untick it")),
        Binding("enter", "tick", N_("tick"), show=False, id="list.tick-too"),
        Binding("m", "master", N_("master"), id="list.master", tooltip=N_("Make the environment the master")),
        Binding(
            "plus,equals_sign",
            "step_gpus(1)",
            N_("use GPUs"),
            key_display="+/-",
            id="list.more-gpus",
            tooltip=N_("Use more or fewer of its GPUs"),
        ),
        Binding("minus", "step_gpus(-1)", N_("fewer GPUs"), show=False, id="list.fewer-gpus"),
        Binding("up", "move(-1)", N_("up"), show=False, id="list.up"),
        Binding("down", "move(1)", N_("down"), show=False, id="list.down"),
        Binding("pageup", "page(-1)", N_("page up"), show=False, id="list.page-up"),
        Binding("pagedown", "page(1)", N_("page down"), show=False, id="list.page-down"),
        Binding("home", "go(0)", N_("first"), show=False, id="list.first"),
        Binding("end", "go(-1)", N_("last"), show=False, id="list.last"),
    ]

    cursor: reactive[int] = reactive(0, repaint=False)
    """Position in the shown order."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._rows: Mapping[str, EnvironmentRow] = {}
        self._order: list[str] = []
        self._ticked: frozenset[str] = frozenset()
        self._master: str | None = None
        self._columns = Columns.for_rows(())
        self._two_lines = True
        self._painted = PaintedLines()

    @property
    def highlighted(self) -> str | None:
        """Key of the environment under the cursor."""
        return self._order[self.cursor] if self.cursor < len(self._order) else None

    @property
    def ticked(self) -> frozenset[str]:
        """Keys of those that are ticked."""
        return self._ticked

    @property
    def shown(self) -> Sequence[str]:
        """Keys in the order in which they are shown."""
        return self._order

    def set_rows(self, rows: Mapping[str, EnvironmentRow]) -> None:
        """Show what is in `rows`, now and later; see `update_rows`."""
        self._rows = rows
        self._columns = Columns.for_rows(rows.values())
        self.repaint()

    def update_rows(self, changed: Collection[str], reshaped: Iterable[str]) -> None:
        """Repaint what can be seen of the rows that changed, and of those only the cells that did.

        Args:
            changed: keys of the rows.
            reshaped: of those that may need wider columns: more than a reading is another.
        """
        columns = self._columns.widened(Columns.for_rows(self._rows[key] for key in reshaped))
        if columns != self._columns:
            self._columns = columns
            self._resize()
            return
        for index in range(*self._visible()):
            if self._order[index] in changed:
                self._repaint_changes(index)

    def repaint(self) -> None:
        """Paint all that can be seen anew, with the times as they are now."""
        self._painted.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        """Paint in other colours."""
        super().notify_style_update()
        self._painted.clear()

    def show(self, order: Sequence[str]) -> None:
        """Show these rows in this order; the cursor stays on its environment where that is still shown."""
        before = self.highlighted
        self._order = list(order)
        if before in self._order:
            self.cursor = self._order.index(before)
        else:
            self.cursor = 0
        self._resize()
        if self.highlighted != before:
            self.post_message(EnvironmentHighlighted(self.highlighted))

    def mark(self, ticked: Sequence[str], master: str | None) -> None:
        """Show which are ticked, and which of them is the master."""
        self._ticked = frozenset(ticked)
        self._master = master if len(self._ticked) > 1 else None
        for index in range(*self._visible()):
            self._repaint_changes(index)

    def render_line(self, y: int) -> Strip:
        """Return one line of what can be seen."""
        width = self.size.width
        index, line = divmod(y + self.scroll_offset.y, self._lines_a_row)
        if index >= len(self._order):
            return Strip.blank(width, self.get_component_rich_style("environment-list--row"))
        return self._painted.get((index, line), *self._source(index, line))

    def action_tick(self) -> None:
        """Tick or untick the environment under the cursor."""
        if self.highlighted is not None:
            self.post_message(EnvironmentToggled((self.highlighted,)))

    def action_master(self) -> None:
        """Make the environment under the cursor the master."""
        if self.highlighted is not None:
            self.post_message(MasterChosen(self.highlighted))

    def action_step_gpus(self, step: int) -> None:
        """Use more or fewer GPUs of the environment under the cursor."""
        if self.highlighted is not None:
            self.post_message(GpusStepped(self.highlighted, step))

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self._go_to(self.cursor + rows)

    def action_page(self, pages: int) -> None:
        """Move the cursor by what fits on the screen."""
        self._go_to(self.cursor + pages * max(1, self.size.height // self._lines_a_row - 1))

    def action_go(self, index: int) -> None:
        """Move the cursor to the first or the last row."""
        self._go_to(index if index >= 0 else len(self._order) - 1)

    def on_click(self, event: events.Click) -> None:
        """Tick or untick the environment that was clicked."""
        index = (event.get_content_offset_capture(self).y + self.scroll_offset.y) // self._lines_a_row
        if 0 <= index < len(self._order):
            self._go_to(index)
            self.action_tick()

    def on_resize(self) -> None:
        """Use one line a row where there is room for all columns, else two."""
        self._resize()

    def watch_show_vertical_scrollbar(self) -> None:
        """Lay out anew when the scroll bar takes room, or gives it back."""
        self.call_after_refresh(self._resize)

    def on_focus(self) -> None:
        """Repaint the cursor."""
        self.refresh()

    def on_blur(self) -> None:
        """Repaint the cursor."""
        self.refresh()

    @property
    def _lines_a_row(self) -> int:
        return 2 if self._two_lines else 1

    def _resize(self) -> None:
        self._two_lines = self.size.width < self._columns.one_line_width
        self.virtual_size = Size(self.size.width, len(self._order) * self._lines_a_row)
        self.refresh()
        self.call_after_refresh(self._reveal)

    def _go_to(self, index: int) -> None:
        index = min(max(index, 0), len(self._order) - 1)
        if index < 0 or index == self.cursor:
            return
        before, self.cursor = self.cursor, index
        self._repaint(before)
        self._repaint(index)
        self._reveal()
        self.post_message(EnvironmentHighlighted(self.highlighted))

    def _reveal(self) -> None:
        region = Region(0, self.cursor * self._lines_a_row, self.size.width, self._lines_a_row)
        self.scroll_to_region(region, animate=False, force=True)

    def _repaint(self, index: int) -> None:
        top = index * self._lines_a_row - self.scroll_offset.y
        self.refresh(Region(0, top, self.size.width, self._lines_a_row))

    def _repaint_changes(self, index: int) -> None:
        for line in range(self._lines_a_row):
            cells = self._painted.changed((index, line), *self._source(index, line))
            if cells is not None:
                y = index * self._lines_a_row + line - self.scroll_offset.y
                self.refresh(Region(cells[0], y, cells[1] - cells[0], 1))

    def _source(self, index: int, line: int) -> tuple[object, Callable[[], Strip]]:
        """Return what a line is painted from, and what paints it."""
        key = self._order[index]
        row, width, kind = self._rows[key], self.size.width, self._kind(index, key)
        is_ticked, is_master = key in self._ticked, key == self._master

        def paint() -> Strip:
            pieces = lines_of(row, self._columns, width, is_ticked, is_master, two=self._two_lines)[line]
            ground = self.get_component_rich_style(f"environment-list--{kind}")
            return painted(self, "environment-list", pieces, ground, width)

        return (row, self._columns, width, kind, is_ticked, is_master, self._two_lines), paint

    def _visible(self) -> tuple[int, int]:
        first = self.scroll_offset.y // self._lines_a_row
        return first, min(len(self._order), first + self.size.height // self._lines_a_row + 2)

    def _kind(self, index: int, key: str) -> str:
        """Return which ground a row has."""
        if index == self.cursor and self.has_focus:
            return "cursor"
        return "ticked" if key in self._ticked else "row"
