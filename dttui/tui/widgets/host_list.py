"""The list of hosts with their marks, under the names of its columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from dttui.tui.commands import N_
from dttui.tui.messages import EnvironmentHighlighted, EnvironmentToggled
from dttui.tui.widgets.cells import Part, painted
from dttui.tui.widgets.host_row import (
    MARK_WIDTH,
    Column,
    HostColumns,
    HostRow,
    column_at,
    header_pieces,
    host_pieces,
)
from dttui.tui.widgets.row_list import RowList


@dataclass
class HostColumnChosen(Message):
    """A person chose the column by which hosts are to be sorted."""

    name: str


class HostTable(RowList):
    """Shows hosts in the order it is given; marks come from outside too."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "host-table--row",
        "host-table--head",
        "host-table--ticked",
        "host-table--cursor",
        *(f"host-table--{part.value}" for part in Part),
        *(f"host-table--environment-{state}" for state in ("connecting", "idle", "busy", "unhealthy", "unreachable")),
        *(f"host-table--state-{state}" for state in ("starting", "succeeded", "failed")),
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "mark", N_("mark"), id="hosts.mark", tooltip=N_("Mark the host, or unmark it")),
    ]
    HEAD_LINES = 1

    def __init__(self, row_of: Callable[[str], HostRow], *, id: str) -> None:
        """Show hosts, of which `row_of` gives the row as it now is: only those that can be seen are asked for."""
        super().__init__(id=id)
        self._row_of = row_of
        self._marked: frozenset[str] = frozenset()
        self._columns = HostColumns.of(())
        self._sort = ("", False)

    @property
    def in_view(self) -> list[str]:
        """Keys of the hosts that can be seen."""
        return [self._order[index] for index in self.visible_rows()]

    def widen(self, rows: Iterable[HostRow]) -> None:
        """Give the columns room for what these rows say."""
        columns = self._columns.widened(HostColumns.of(rows))
        if columns != self._columns:
            self._columns = columns
            self.refresh()

    def repaint(self, keys: Collection[str]) -> None:
        """Draw hosts anew that have changed."""
        self.widen(self._row_of(key) for key in keys)
        for index in self.visible_rows():
            if self._order[index] in keys:
                self.repaint_row(index)

    def sort_by(self, name: str, *, is_reversed: bool) -> None:
        """Tell by which column the order is."""
        self._sort = (name, is_reversed)
        self.refresh()

    def mark(self, marked: Collection[str]) -> None:
        """Show which are marked."""
        self._marked = frozenset(marked)
        self.refresh()

    def highlight_changed(self) -> None:
        """Tell which host is under the cursor."""
        self.post_message(EnvironmentHighlighted(self.highlighted))

    def render_line(self, y: int) -> Strip:
        """Return one line of what can be seen."""
        width, columns = self.size.width, self._fitting
        if y < self.HEAD_LINES:
            name, is_reversed = self._sort
            ground = self.get_component_rich_style("host-table--head")
            return painted(
                self, "host-table", header_pieces(columns, width, name, is_reversed=is_reversed), ground, width
            )
        index = y - self.HEAD_LINES + self.scroll_offset.y
        if index >= len(self._order):
            return Strip.blank(width, self.get_component_rich_style("host-table--row"))
        key = self._order[index]
        kind = "cursor" if index == self.cursor and self.has_focus else "ticked" if key in self._marked else "row"
        ground = self.get_component_rich_style(f"host-table--{kind}")
        pieces = host_pieces(self._row_of(key), columns, width, is_marked=key in self._marked)
        return painted(self, "host-table", pieces, ground, width)

    def action_mark(self) -> None:
        """Mark or unmark the host under the cursor, and go on to the next one."""
        if self.highlighted is not None:
            self.post_message(EnvironmentToggled((self.highlighted,)))
            self.action_move(1)

    def on_click(self, event: events.Click) -> None:
        """Go to the host that was clicked, and mark it where its mark was; sort where it was a column's name."""
        place = event.get_content_offset_capture(self)
        if place.y < self.HEAD_LINES:
            name = column_at(self._fitting, place.x)
            if name is not None:
                self.post_message(HostColumnChosen(name))
            return
        index = self.row_at(place)
        if index is not None:
            self.go_to(index)
            if place.x < MARK_WIDTH:
                self.post_message(EnvironmentToggled((self._order[index],)))

    @property
    def _fitting(self) -> list[tuple[Column, int]]:
        return self._columns.fitting(self.size.width)
