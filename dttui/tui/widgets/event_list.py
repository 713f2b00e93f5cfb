"""The events of a job, the newest last; from the one under the cursor a person goes to what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message

from dttui.tui.commands import N_
from dttui.tui.widgets.paragraphs import Paragraphs


class EventLines(Paragraphs):
    """The events: only the time of one begins at the margin, whatever a host has said in the one before."""

    hangs = True


class EventList(VerticalScroll):
    """Follows the newest event until a person goes to another one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(-1)", N_("up"), show=False, id="events.up"),
        Binding("down", "step(1)", N_("down"), show=False, id="events.down"),
        Binding("pageup", "page(-1)", N_("page up"), show=False, id="events.page-up"),
        Binding("pagedown", "page(1)", N_("page down"), show=False, id="events.page-down"),
        Binding("home", "first", N_("first"), show=False, id="events.first"),
        Binding("end", "newest", N_("newest"), show=False, id="events.newest"),
        Binding(
            "enter",
            "open",
            N_("its log"),
            id="events.log",
            tooltip=N_("Go to the log of the node, at the event's time"),
        ),
    ]

    @dataclass
    class EventOpened(Message):
        """A person wants to see what an event is about."""

        number: int

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._first = self._count = 0
        self._cursor: int | None = None
        """Number of the event under it; `None` for the newest, whichever that is."""

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        yield EventLines(id="run-events")

    def on_mount(self) -> None:
        """Begin at the newest."""
        self.anchor()

    def on_focus(self) -> None:
        """Show the cursor."""
        self._mark()

    def on_blur(self) -> None:
        """Show none."""
        self._mark()

    def show(self, lines: Sequence[Content], first: int) -> None:
        """Show events, of which the first one has a number."""
        self._first, self._count = first, len(lines)
        if self._cursor is not None:
            self._cursor = min(max(self._cursor, first), first + len(lines) - 1)
        self._text.show(Content("\n").join(lines))
        self._mark()

    def action_step(self, by: int) -> None:
        """Go to the event above or below."""
        self._go(self._at + by)

    def action_page(self, direction: int) -> None:
        """Go as far up or down as is seen at once."""
        at, rest = self._at, self.size.height
        while 0 <= at - self._first + direction < self._count and rest > 0:
            at += direction
            rest -= self._text.region_of(at - self._first).height
        self._go(at)

    def action_first(self) -> None:
        """Go to the first one."""
        self._go(self._first)

    def action_newest(self) -> None:
        """Go to the newest one, and stay with it."""
        self._go(self._first + self._count - 1)

    def action_open(self) -> None:
        """Ask for what the event under the cursor is about."""
        if self._count:
            self.post_message(self.EventOpened(self._at))

    @on(Paragraphs.Clicked)
    def _clicked(self, event: Paragraphs.Clicked) -> None:
        event.stop()
        self._go(self._first + event.index)
        self.action_open()

    @property
    def _text(self) -> EventLines:
        return self.query_one(EventLines)

    @property
    def _at(self) -> int:
        return self._first + self._count - 1 if self._cursor is None else self._cursor

    def _go(self, number: int) -> None:
        if not self._count:
            return
        newest = self._first + self._count - 1
        number = min(max(number, self._first), newest)
        self._cursor = None if number == newest else number
        self._mark()
        if self._cursor is None:
            self.anchor()
            self.scroll_end(animate=False)
            return
        self.release_anchor()
        self.scroll_to_region(self._text.region_of(number - self._first), animate=False, force=True)

    def _mark(self) -> None:
        self._text.mark(self._at - self._first if self.has_focus and self._count else None)
