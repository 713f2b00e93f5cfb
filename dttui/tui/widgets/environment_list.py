"""The list of environments with their checkboxes: Line API, so that thousands scroll as lightly as ten."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.strip import Strip

from dttui.tui.commands import N_
from dttui.tui.messages import EnvironmentHighlighted, EnvironmentToggled, GpusStepped, MasterChosen
from dttui.tui.widgets.cells import Part, painted
from dttui.tui.widgets.environment_row import Columns, EnvironmentRow, lines_of
from dttui.tui.widgets.painted_lines import PaintedLines
from dttui.tui.widgets.row_list import RowList


class EnvironmentList(RowList):
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
            tooltip=N_("Use more or fewer of its GPUs, any of them"),
        ),
        Binding("minus", "step_gpus(-1)", N_("fewer GPUs"), show=False, id="list.fewer-gpus"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._rows: Mapping[str, EnvironmentRow] = {}
        self._ticked: frozenset[str] = frozenset()
        self._master: str | None = None
        self._columns = Columns.for_rows(())
        self._two_lines = True
        self._painted = PaintedLines()

    @property
    def ticked(self) -> frozenset[str]:
        """Keys of those that are ticked."""
        return self._ticked

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
            self.resize_rows()
            return
        for index in self.visible_rows():
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

    def highlight_changed(self) -> None:
        """Tell which environment is under the cursor."""
        self.post_message(EnvironmentHighlighted(self.highlighted))

    def resize_rows(self) -> None:
        """Use one line a row where there is room for all columns, else two."""
        self._two_lines = self.size.width < self._columns.one_line_width
        super().resize_rows()

    @property
    def lines_a_row(self) -> int:
        """How many lines a row takes."""
        return 2 if self._two_lines else 1

    def mark(self, ticked: Sequence[str], master: str | None) -> None:
        """Show which are ticked, and which of them is the master."""
        self._ticked = frozenset(ticked)
        self._master = master if len(self._ticked) > 1 else None
        for index in self.visible_rows():
            self._repaint_changes(index)

    def render_line(self, y: int) -> Strip:
        """Return one line of what can be seen."""
        width = self.size.width
        index, line = divmod(y + self.scroll_offset.y, self.lines_a_row)
        if index >= len(self._order):
            return Strip.blank(width, self.get_component_rich_style("environment-list--row"))
        return self._painted.get((index, line), *self._source(index, line))

    def action_tick(self) -> None:
        """Tick or untick the environment under the cursor, and go on to the next one."""
        if self.highlighted is not None:
            self.post_message(EnvironmentToggled((self.highlighted,)))
            self.action_move(1)

    def action_master(self) -> None:
        """Make the environment under the cursor the master."""
        if self.highlighted is not None:
            self.post_message(MasterChosen(self.highlighted))

    def action_step_gpus(self, step: int) -> None:
        """Use more or fewer GPUs of the environment under the cursor."""
        if self.highlighted is not None:
            self.post_message(GpusStepped(self.highlighted, step))

    def on_click(self, event: events.Click) -> None:
        """Tick or untick the environment that was clicked."""
        index = self.row_at(event.get_content_offset_capture(self))
        if index is not None:
            self.go_to(index)
            self.post_message(EnvironmentToggled((self._order[index],)))

    def _repaint_changes(self, index: int) -> None:
        for line in range(self.lines_a_row):
            cells = self._painted.changed((index, line), *self._source(index, line))
            if cells is not None:
                y = index * self.lines_a_row + line - self.scroll_offset.y
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

    def _kind(self, index: int, key: str) -> str:
        """Return which ground a row has."""
        if index == self.cursor and self.has_focus:
            return "cursor"
        return "ticked" if key in self._ticked else "row"
