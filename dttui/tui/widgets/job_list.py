"""The list of jobs, under headings that sort it: Line API, so that hundreds scroll as lightly as ten."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
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


class JobList(ScrollView, can_focus=True):
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
        Binding("up", "move(-1)", N_("up"), show=False, id="jobs.up"),
        Binding("down", "move(1)", N_("down"), show=False, id="jobs.down"),
        Binding("pageup", "page(-1)", N_("page up"), show=False, id="jobs.page-up"),
        Binding("pagedown", "page(1)", N_("page down"), show=False, id="jobs.page-down"),
        Binding("home", "go(0)", N_("first"), show=False, id="jobs.first"),
        Binding("end", "go(-1)", N_("last"), show=False, id="jobs.last"),
    ]

    cursor: reactive[int] = reactive(0, repaint=False)
    """Position in the shown order."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._rows: Mapping[str, JobRow] = {}
        self._order: list[str] = []
        self._marked: frozenset[str] = frozenset()
        self._sort = (JobColumn.BEGUN, True)
        self._widths = natural_widths(())

    @property
    def highlighted(self) -> str | None:
        """Key of the job under the cursor."""
        return self._order[self.cursor] if self.cursor < len(self._order) else None

    @property
    def shown(self) -> Sequence[str]:
        """Keys in the order in which they are shown."""
        return self._order

    def show(self, rows: Mapping[str, JobRow], order: Sequence[str], sort: JobColumn, *, is_reversed: bool) -> None:
        """Show these rows in this order; the cursor stays on its job where that is still shown.

        Only lines that are others now are drawn again.
        """
        before, was = self.highlighted, (self._order, self._sort, self._widths)
        changed = {key for key, row in rows.items() if row is not self._rows.get(key)}
        self._rows, self._order, self._sort = rows, list(order), (sort, is_reversed)
        self._widths = natural_widths((rows[key] for key in changed), self._widths)
        if before in rows and before in self._order:
            self.cursor = self._order.index(before)
        else:
            self.cursor = min(self.cursor, max(0, len(self._order) - 1))
        if was != (self._order, self._sort, self._widths):
            self._resize()
        else:
            for y in range(1, self.size.height):
                index = self.scroll_offset.y + y - 1
                if index < len(self._order) and self._order[index] in changed:
                    self._repaint(index)
        if self.highlighted != before or before in changed:
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
            self._go_to(self.cursor + 1)

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self._go_to(self.cursor + rows)

    def action_page(self, pages: int) -> None:
        """Move the cursor by what fits on the screen."""
        self._go_to(self.cursor + pages * max(1, self.size.height - 2))

    def action_go(self, index: int) -> None:
        """Move the cursor to the first or the last row."""
        self._go_to(index if index >= 0 else len(self._order) - 1)

    def on_click(self, event: events.Click) -> None:
        """Sort by a heading; mark by a checkbox; go to a row, and open the one where the cursor is."""
        offset = event.get_content_offset_capture(self)
        if offset.y == 0:
            column = column_at(self._columns, self.size.width, offset.x)
            if column is not None:
                self.post_message(JobsSorted(column.value))
            return
        index = offset.y - 1 + self.scroll_offset.y
        if not 0 <= index < len(self._order):
            return
        if offset.x < MARK_WIDTH:
            self._go_to(index)
            self.post_message(JobToggled(self._order[index]))
        elif index == self.cursor:
            self.action_open()
        else:
            self._go_to(index)

    def on_resize(self) -> None:
        """Lay out anew."""
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
    def _columns(self) -> Layout:
        return layout(self._widths, self.size.width)

    def _resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self._order) + 1)
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
        self.post_message(JobHighlighted(self.highlighted))

    def _reveal(self) -> None:
        """Scroll so far that the row under the cursor is seen, below the headings."""
        rows, top = self.size.height - 1, int(self.scroll_target_y)
        wanted = min(top, self.cursor) if self.cursor < top + rows else self.cursor - rows + 1
        if rows > 0 and wanted != top:
            self.scroll_to(y=wanted, animate=False, force=True)

    def _repaint(self, index: int) -> None:
        self.refresh(Region(0, index + 1 - self.scroll_offset.y, self.size.width, 1))

    def _ground(self, index: int, key: str) -> Style:
        kind = "row"
        if index == self.cursor and self.has_focus:
            kind = "cursor"
        elif key in self._marked:
            kind = "marked"
        return self.get_component_rich_style(f"job-list--{kind}")
