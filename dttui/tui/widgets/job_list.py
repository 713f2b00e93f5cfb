"""The list of jobs, under headings that sort it: Line API, so that hundreds scroll as lightly as ten."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.strip import Strip

from dttui.tui.commands import N_
from dttui.tui.messages import JobChosen, JobHighlighted, JobsSorted, JobToggled
from dttui.tui.widgets.cells import Part, painted
from dttui.tui.widgets.job_row import (
    MARK_WIDTH,
    JobColumn,
    JobRow,
    Layout,
    column_at,
    heading,
    layout,
    natural_widths,
    row_pieces,
)
from dttui.tui.widgets.row_list import RowList


class JobList(RowList):
    """Shows rows in the order it is given; marks come from outside."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "job-list--row",
        "job-list--heading",
        "job-list--marked",
        "job-list--cursor",
        *(f"job-list--{part.value}" for part in Part),
        *(
            f"job-list--state-{state}"
            for state in (
                "waiting", "starting", "running", "stopping", "succeeded", "failed", "cancelled", "unknown",
            )
        ),
    }  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", N_("open"), id="jobs.open", tooltip=N_("Watch the job under the cursor")),
        Binding("space", "mark", N_("mark"), id="jobs.mark", tooltip=N_("Mark the job, or take the mark away")),
    ]

    HEAD_LINES = 1

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._rows: Mapping[str, JobRow] = {}
        self._marked: frozenset[str] = frozenset()
        self._sort = (JobColumn.BEGUN, True)
        self._widths = natural_widths(())

    def show_jobs(
        self, rows: Mapping[str, JobRow], order: Sequence[str], sort: JobColumn, *, is_reversed: bool
    ) -> None:
        """Show these rows in this order; the cursor stays on its job, or where it was if that is not shown any more.

        Only lines that are others now are drawn again.
        """
        before, place, was = self.highlighted, self.cursor, (self._order, self._sort, self._widths)
        changed = {key for key, row in rows.items() if row is not self._rows.get(key)}
        self._rows, self._sort = rows, (sort, is_reversed)
        self._widths = natural_widths((rows[key] for key in changed), self._widths)
        if was != (list(order), self._sort, self._widths):
            self.show(order)
            if before is not None and before not in self._order:
                self.go_to(place)
        else:
            for index in self.visible_rows():
                if self._order[index] in changed:
                    self.repaint_row(index)
        if before in changed and before == self.highlighted:
            self.highlight_changed()

    def highlight_changed(self) -> None:
        """Tell which job is under the cursor."""
        self.post_message(JobHighlighted(self.highlighted))

    def mark(self, marked: Collection[str]) -> None:
        """Show which are marked."""
        if self._marked != marked:
            self._marked = frozenset(marked)
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return one line of what can be seen; the first is always the headings."""
        width = self.size.width
        columns = self._columns
        if y == 0:
            ground = self.get_component_rich_style("job-list--heading")
            sort, is_reversed = self._sort
            return painted(self, "job-list", heading(columns, width, sort, is_reversed=is_reversed), ground, width)
        index = y - 1 + self.scroll_offset.y
        if index >= len(self._order):
            return Strip.blank(width, self.get_component_rich_style("job-list--row"))
        key = self._order[index]
        pieces = row_pieces(self._rows[key], columns, width, is_marked=key in self._marked)
        return painted(self, "job-list", pieces, self._ground(index, key), width)

    def action_open(self) -> None:
        """Open the job under the cursor."""
        if self.highlighted is not None:
            self.post_message(JobChosen(self.highlighted))

    def action_mark(self) -> None:
        """Mark the job under the cursor, or take its mark away, and go on to the next."""
        if self.highlighted is not None:
            self.post_message(JobToggled(self.highlighted))
            self.action_move(1)

    def on_click(self, event: events.Click) -> None:
        """Sort by a heading; mark by a checkbox; go to a row, and open the one where the cursor is."""
        offset = event.get_content_offset_capture(self)
        if offset.y == 0:
            column = column_at(self._columns, self.size.width, offset.x)
            if column is not None:
                self.post_message(JobsSorted(column.value))
            return
        index = self.row_at(offset)
        if index is None:
            return
        if offset.x < MARK_WIDTH:
            self.go_to(index)
            self.post_message(JobToggled(self._order[index]))
        elif index == self.cursor:
            self.action_open()
        else:
            self.go_to(index)

    @property
    def _columns(self) -> Layout:
        return layout(self._widths, self.size.width)

    def _ground(self, index: int, key: str) -> Style:
        kind = "row"
        if index == self.cursor and self.has_focus:
            kind = "cursor"
        elif key in self._marked:
            kind = "marked"
        return self.get_component_rich_style(f"job-list--{kind}")
