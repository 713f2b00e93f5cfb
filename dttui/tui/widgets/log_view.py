"""Lines of a log of any length: Line API, drawn from whatever has them, with what is looked for marked."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual import work
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from dttui.tui.commands import N_
from dttui.tui.log_scan import ERRORS, WARNINGS, NumberedLines, Scan, Sought

BLOCK = 128
"""Lines that are fetched together."""
MOST_BLOCKS = 64
LEVELS: tuple[Sought | None, ...] = (None, WARNINGS, ERRORS)
"""What is shown: all lines, or only those that tell of something."""


@dataclass
class LogLooked(Message):
    """Another place of the log is shown, or more of what is looked for was found."""

    def can_replace(self, message: Message) -> bool:
        """Only the last of several matters."""
        return isinstance(message, LogLooked)


class LogView(ScrollView, can_focus=True):
    """Shows a store of lines; follows its end until a person goes elsewhere."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"log-view--{part}" for part in ("line", "error", "warning", "told", "match", "current")
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "go(1)", N_("next"), show=False, id="log.next", tooltip=N_("Go to the next line found")),
        Binding(
            "N", "go(-1)", N_("previous"), show=False, id="log.previous", tooltip=N_("Go to the line found before")
        ),
        Binding("e", "error(1)", N_("next error"), id="log.error", tooltip=N_("Go to the next error")),
        Binding(
            "E",
            "error(-1)",
            N_("error before"),
            show=False,
            id="log.error-before",
            tooltip=N_("Go to the error before"),
        ),
        Binding(
            "l",
            "level",
            N_("level"),
            id="log.level",
            tooltip=N_("Show all lines, warnings and errors, or errors alone"),
        ),
        Binding("w", "wrap", N_("wrap"), id="log.wrap", tooltip=N_("Break long lines, or not")),
        Binding("space", "follow", N_("follow"), id="log.follow", tooltip=N_("Stand still, or follow the end")),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.store: NumberedLines | None = None
        self.scan: Scan | None = None
        """What is looked for."""
        self.wraps = False
        self.is_following = True
        self.level = 0
        """Which of `LEVELS`."""
        self.at: int | None = None
        """Line that was gone to."""
        self._filter: Scan | None = None
        self._wish: tuple[int, int] | None = None
        """Line and direction from which the next one is gone to, once it is found."""
        self._kept: int | None = None
        """Line that is to stay at the top while it is found out which are shown."""
        self._home: int | None = None
        """Line at the top as levels were begun to be changed; `None` once a person has gone elsewhere."""
        self._is_looking = False
        self._generation = 0
        self._is_led = False
        """Whether it is not a person who scrolls."""
        self._first = 0
        self._width = 0
        self._blocks: dict[int, list[str]] = {}
        self._rows: list[tuple[int, int, int]] = []
        """Of wrapped lines, what each row of the screen has: line, and from where to where in its text."""

    @property
    def count(self) -> int:
        """How many lines there are to be shown."""
        if self._filter is not None:
            return len(self._filter.found)
        return 0 if self.store is None else self.store.end - self.store.first

    @property
    def top(self) -> int:
        """Number of the first line on the screen."""
        return self._number(round(self.scroll_offset.y))

    @property
    def room(self) -> Size:
        """Cells for lines: without scrollbars."""
        return self.scrollable_content_region.size

    @property
    def last(self) -> int:
        """The how manieth of the lines that are shown stands at the bottom."""
        row = round(self.scroll_offset.y)
        rows = len({number for number, *_place in self._rows}) if self.wraps else self.room.height
        return min(self.count, row + rows)

    def show(self, store: NumberedLines | None) -> None:
        """Show other lines, from their end on; what is looked for is looked for in them."""
        self.store, self.at, self._wish, self._width = store, None, None, 0
        self._kept = self._home = None
        self.is_following = True
        self._first, self._generation = (store.first, store.generation) if store is not None else (0, 0)
        self.scan = Scan(store, self.scan.wanted) if store is not None and self.scan is not None else None
        self._refilter()
        self.grown()

    def grown(self, earlier: int = 0) -> None:
        """Take in that there are other lines, of which so many come before those that there were."""
        store = self.store
        self._blocks.clear()
        if store is not None and store.generation != self._generation:
            self.show(store)
            return
        # Of what was kept then: the oldest lines may have gone.
        top = self.top if self._filter is not None else round(self.scroll_offset.y) + self._first
        if store is not None:
            self._first = store.first
            if earlier:
                self.at = None if self.at is None else self.at + earlier
                self._kept = None if self._kept is None else self._kept + earlier
                self._home = None if self._home is None else self._home + earlier
                self._wish = None if self._wish is None else (self._wish[0] + earlier, self._wish[1])
                self.scan = Scan(store, self.scan.wanted) if self.scan is not None else None
                self._refilter()
            for scan in (self.scan, self._filter):
                if scan is not None:
                    scan.forget()
        self._lay_out()
        if not self.is_following:
            self._go_to_row(self._row_of(top + earlier))
        self._look_through()

    def look_for(self, wanted: Sought | None, direction: int = 1) -> None:
        """Look for something, and go to where it is next; `None` for nothing any more."""
        if self.store is None or wanted is None:
            self.scan, self._wish, self.at = None, None, None
        elif self.scan is None or self.scan.wanted != wanted:
            self.scan = Scan(self.store, wanted)
        self.refresh()
        if wanted is not None:
            self.action_go(direction)
        self.post_message(LogLooked())

    def action_go(self, direction: int) -> None:
        """Go to the next of what is found, or the one before."""
        if self.scan is not None and self.store is not None:
            at = self.at
            if at is None:
                at = self.store.end if self.is_following else self.top - direction
            self._wish = at, direction
            self._come()
            self._look_through()

    def action_error(self, direction: int) -> None:
        """Go to the next error, or the one before."""
        self.look_for(ERRORS, direction)

    def action_level(self) -> None:
        """Show fewer lines, or all again; the first that is seen stays, or what comes after it."""
        if self.level == 0 or self._home is None:
            self._home = self.top
        self._kept = None if self.is_following else self._home
        self.level = (self.level + 1) % len(LEVELS)
        self._refilter()
        self._blocks.clear()
        self._lay_out()
        self._look_through()
        self.post_message(LogLooked())

    def action_wrap(self) -> None:
        """Break long lines, or let them go on to the right."""
        top, self.wraps = self.top, not self.wraps
        self._lay_out()
        if not self.is_following:
            self._go_to_row(self._row_of(top))
        self.post_message(LogLooked())

    def action_follow(self) -> None:
        """Stand still, or follow the end."""
        self.is_following = not self.is_following
        self._lay_out()
        self.post_message(LogLooked())

    def go_to(self, number: int) -> None:
        """Show a line, as the one that was gone to."""
        self.at, self.is_following, self._kept, self._home = number, False, None, None
        row, room = self._row_of(number), self.room.height // 3
        while row > 0 and (room := room - self._height_of(row - 1)) >= 0:
            row -= 1
        self._go_to_row(row)
        self.refresh()
        self.post_message(LogLooked())

    def shown_lines(self) -> list[str]:
        """Return what is on the screen; the line that was gone to, where it is among it."""
        row = round(self.scroll_offset.y)
        numbers = [self._number(at) for at in range(row, self.last)]
        return [self._text(number) for number in ([self.at] if self.at in numbers and self.at is not None else numbers)]

    def numbers(self) -> list[int] | None:
        """Return the lines that are shown at all; `None` for all of them."""
        return None if self._filter is None else [*self._filter.found]

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Follow the end again once a person has come there, and no more once they have left it."""
        super().watch_scroll_y(old_value, new_value)
        if not self._is_led and self._kept is None:
            self.is_following, self._home = new_value >= self._end_row(), None
        self._wrap_rows()
        self.post_message(LogLooked())

    def on_mount(self) -> None:
        """Have the end in sight also where a scrollbar takes a line of it."""
        for bar in ("show_horizontal_scrollbar", "show_vertical_scrollbar"):
            self.watch(self, bar, self._lay_out, init=False)

    def on_resize(self) -> None:
        """Lay the lines out anew."""
        self._lay_out()

    def render_line(self, y: int) -> Strip:
        """Return one line of what can be seen."""
        ground, width = self.get_component_rich_style("log-view--line"), self.size.width
        if self.wraps:
            if y >= len(self._rows):
                return Strip.blank(width, ground)
            number, begin, end = self._rows[y]
            left = 0
        else:
            row = y + round(self.scroll_offset.y)
            if row >= self.count:
                return Strip.blank(width, ground)
            number = self._number(row)
            begin, end, left = 0, len(self._text(number)), round(self.scroll_offset.x)
            self._widen(cell_len(self._text(number)))
        strip = Strip(self._painted(number, begin, end, self._style_of(number, ground)))
        return strip.crop_extend(left, left + width, ground)

    def _painted(self, number: int, begin: int, end: int, style: Style) -> list[Segment]:
        """Return a line, or a piece of one, with what is looked for marked, also where it goes on in the next piece."""
        text = self._text(number)
        segments, at = [], begin
        if self.scan is not None:
            marked = self.get_component_rich_style(f"log-view--{'current' if number == self.at else 'match'}")
            for match in self.scan.wanted.pattern.finditer(text):
                first, last = max(match.start(), at), min(match.end(), end)
                if first < last:
                    segments += [Segment(text[at:first], style), Segment(text[first:last], marked)]
                    at = last
        return [*segments, Segment(text[at:end], style)]

    def _style_of(self, number: int, ground: Style) -> Style:
        text = self._text(number)
        for part, wanted in (("error", ERRORS), ("warning", WARNINGS)):
            if wanted.pattern.search(text):
                return ground + self.get_component_rich_style(f"log-view--{part}", partial=True)
        is_told = text.startswith("…")
        return ground + self.get_component_rich_style("log-view--told", partial=True) if is_told else ground

    def _look_through(self) -> None:
        """Have all looked through that was not yet; one at a time does, whatever else comes meanwhile."""
        if not self._is_looking:
            self._is_looking = True
            self._look()

    @work(group="log-search")
    async def _look(self) -> None:
        try:
            while (scan := self._unfinished()) is not None:
                store, generation = self.store, self._generation
                until, found = await asyncio.to_thread(scan.look)
                if scan not in (self._filter, self.scan) or store is not self.store or generation != self._generation:
                    continue  # It is no more of what is shown.
                scan.take(until, found)
                if scan is self._filter:
                    self._lay_out()
                    if self._kept is not None:
                        self._go_to_row(self._row_of(self._kept))
                self._come()
                self.refresh()
                self.post_message(LogLooked())
            self._come(is_last=True)
            if self._kept is not None:
                self._go_to_row(self._row_of(self._kept))
                self.call_after_refresh(self._let_go)
            self.post_message(LogLooked())
        finally:
            self._is_looking = False

    def _let_go(self) -> None:
        """Let a person scroll again, who may come to the end."""
        self._kept = None

    def _unfinished(self) -> Scan | None:
        return next((scan for scan in (self._filter, self.scan) if scan is not None and not scan.is_done), None)

    def _come(self, *, is_last: bool = False) -> None:
        """Go where a person wants to, once it is known that nothing nearer will be found."""
        if self._wish is None or self.scan is None:
            return
        number, direction = self._wish
        found = self._nearest_shown(number, direction)
        is_ahead = found is not None and (found > number if direction > 0 else found < number)
        is_all = is_last or self._unfinished() is None
        if found is not None and (is_all or (is_ahead and direction > 0)):
            self._wish = None
            self.go_to(found)
        elif is_last:
            self._wish = None

    def _nearest_shown(self, number: int, direction: int) -> int | None:
        """Return the next line that is found and not left out by the level."""
        found = self.scan.nearest(number, direction) if self.scan is not None else None
        if self._filter is None or self.scan is None:
            return found
        for _each in self.scan.found:
            if found is None or self._filter.place(found) is not None:
                return found
            found = self.scan.nearest(found, direction)
        return None

    def _refilter(self) -> None:
        wanted = LEVELS[self.level]
        self._filter = Scan(self.store, wanted) if wanted is not None and self.store is not None else None

    def _number(self, row: int) -> int:
        if self._filter is not None:
            found = self._filter.found
            return found[min(max(row, 0), len(found) - 1)] if found else 0
        return row + (self.store.first if self.store is not None else 0)

    def _row_of(self, number: int) -> int:
        if self._filter is not None:
            return bisect_left(self._filter.found, number)
        return number - (self.store.first if self.store is not None else 0)

    def _text(self, number: int) -> str:
        block, at = divmod(number, BLOCK)
        if block not in self._blocks and self.store is not None:
            if len(self._blocks) >= MOST_BLOCKS:
                self._blocks.clear()
            first = max(block * BLOCK, self.store.first)
            missing = first - block * BLOCK
            lines = [line.expandtabs() for line in self.store.lines(first, BLOCK - missing)]
            self._blocks[block] = [""] * missing + lines
        lines = self._blocks.get(block, [])
        return lines[at] if at < len(lines) else ""

    def _widen(self, cells: int) -> None:
        if cells > self._width:
            self._width = cells
            self.call_later(self._lay_out)

    def _lay_out(self) -> None:
        self._is_led = True  # Where there are fewer lines, the place may have to change.
        try:
            height = self.count + (self.room.height - 1 if self.wraps else 0)
            self.virtual_size = Size(0 if self.wraps else self._width, height)
        finally:
            self._is_led = False
        if self.is_following:
            self._go_to_row(self._end_row())
        self._wrap_rows()
        self.refresh()

    def _go_to_row(self, row: int) -> None:
        self._is_led = True
        try:
            self.scroll_to(y=max(0, row), animate=False, force=True, immediate=True)
        finally:
            self._is_led = False

    def _end_row(self) -> int:
        """Return the row at the top when the end is at the bottom."""
        room, row = self.room.height, self.count
        if not self.wraps:
            return max(0, row - room)
        while row > 0 and (room := room - self._height_of(row - 1)) >= 0:
            row -= 1
        return min(row, max(0, self.count - 1))

    def _height_of(self, row: int) -> int:
        return len(self._pieces(self._number(row))) if self.wraps else 1

    def _wrap_rows(self) -> None:
        self._rows = []
        row = round(self.scroll_offset.y)
        while self.wraps and len(self._rows) < self.size.height and row < self.count:
            number, begin = self._number(row), 0
            for piece in self._pieces(number):
                self._rows.append((number, begin, begin + len(piece)))
                begin += len(piece)
            row += 1

    def _pieces(self, number: int) -> list[str]:
        text = self._text(number)
        return chop_cells(text, max(1, self.room.width)) if text else [""]
