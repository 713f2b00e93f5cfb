"""A letter on each place of a screen that can have the focus: pressing it goes there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Offset
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Label, Tab, Tabs

from dttui.tui.commands import N_
from dttui.tui.screens.page import Page

LETTERS = "asdfghjklqwertyuiopzxcvbnm1234567890"
"""Those under the fingers first."""
MARK_CELLS = 3


@dataclass(frozen=True)
class JumpPlace:
    """Where a letter is, and what it leads to."""

    letter: str
    at: Offset
    widget: Widget


class JumpScreen(ModalScreen[Widget], Page[Widget]):
    """Lies over a screen; any other key closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", N_("back"), id="jump.back", tooltip=N_("Go nowhere")),
    ]

    def __init__(self, places: tuple[JumpPlace, ...]) -> None:
        super().__init__()
        self._places = places

    def compose(self) -> ComposeResult:
        """Lay out the letters."""
        for place in self._places:
            mark = Label(Content(f" {place.letter} "), classes="jump-mark")
            mark.styles.offset = place.at
            yield mark

    def on_key(self, event: events.Key) -> None:
        """Go to the place of the letter."""
        event.stop()
        self.dismiss(next((place.widget for place in self._places if place.letter == event.character), None))

    def on_click(self, event: events.Click) -> None:
        """Go to the place of the letter that is clicked."""
        at = event.screen_offset
        beside = (place for place in self._places if place.at.y == at.y and 0 <= at.x - place.at.x < MARK_CELLS)
        self.dismiss(next((place.widget for place in beside), None))


def jump_places(screen: Screen[Any]) -> tuple[JumpPlace, ...]:
    """Return the places of a screen that can be gone to and are to be seen, in the order of reading."""
    found = sorted(_seen(screen), key=lambda item: (item[0].y, item[0].x))
    taken: set[Offset] = set()
    places = []
    for letter, (at, widget) in zip(LETTERS, found, strict=False):
        while any(Offset(at.x + step, at.y) in taken for step in range(1 - MARK_CELLS, MARK_CELLS)):
            at = Offset(at.x + MARK_CELLS, at.y)
        taken.add(at)
        places.append(JumpPlace(letter, at, widget))
    return tuple(places)


def go_to(widget: Widget | None) -> None:
    """Give a place the focus; a tab is opened."""
    if isinstance(widget, Tab):
        tabs = next(node for node in widget.ancestors if isinstance(node, Tabs))
        tabs.active = widget.id or ""
    elif widget is not None and widget.is_attached:
        widget.focus()


def _seen(screen: Screen[Any]) -> Iterator[tuple[Offset, Widget]]:
    for widget in (*screen.focus_chain, *screen.query(Tab)):
        if isinstance(widget, Tabs) or not widget.is_on_screen:
            continue
        seen = screen.find_widget(widget).visible_region
        if seen.area:
            yield seen.offset, widget
