"""All open screens in another language: each is composed anew, and shows what it showed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from textual.app import App
from textual.screen import Screen
from textual.widgets import Input, TabbedContent, Tabs, TextArea

from dttui.tui.widgets.row_list import RowList


class _Place(NamedTuple):
    """Where a person was on a screen."""

    focused: str | None
    tabs: dict[str, str]
    texts: dict[str, str]
    """What stands in fields, by their id."""
    cursors: dict[str, int]
    """Rows that cursors of lists are on."""
    carets: dict[str, tuple[int, int]]
    """Line and column at which texts are edited."""


async def tell_anew(app: App[Any]) -> None:
    """Have every open screen say in the language chosen now what it says.

    A screen whose `compose` does not make all of it has a method `fill`, which shows the rest again.
    """
    for screen in app.screen_stack:
        is_told = asyncio.Event()
        screen.call_next(_tell, screen, is_told)  # Messages to it wait meanwhile.
        await is_told.wait()


async def _tell(screen: Screen[Any], is_told: asyncio.Event) -> None:
    try:
        place = _place_of(screen)
        await screen.recompose()
        _restore(screen, place)
        fill: Callable[[], object] | None = getattr(screen, "fill", None)
        if fill is not None:
            fill()
        _go_back(screen, place)
        screen.refresh_bindings()
    finally:
        is_told.set()


def _place_of(screen: Screen[Any]) -> _Place:
    tabs = {item.id: item.active for item in _tabs_of(screen) if item.id}
    texts = {item.id: item.value for item in screen.query(Input) if item.id}
    cursors = {item.id: item.cursor for item in screen.query(RowList) if item.id}
    carets = {item.id: item.cursor_location for item in screen.query(TextArea) if item.id}
    return _Place(screen.focused.id if screen.focused is not None else None, tabs, texts, cursors, carets)


def _restore(screen: Screen[Any], place: _Place) -> None:
    for item in _tabs_of(screen):
        if active := place.tabs.get(item.id or ""):
            item.active = active
    for field in screen.query(Input):
        if field.id in place.texts:
            field.value = place.texts[field.id]


def _go_back(screen: Screen[Any], place: _Place) -> None:
    for listed in screen.query(RowList):
        before, listed.cursor = listed.cursor, place.cursors.get(listed.id or "", listed.cursor)
        if listed.highlighted is None:  # Of that row nothing is known yet.
            listed.cursor = before
    for area in screen.query(TextArea):
        area.cursor_location = place.carets.get(area.id or "", area.cursor_location)
    for widget in screen.query(f"#{place.focused}") if place.focused is not None else ():
        screen.set_focus(widget)


def _tabs_of(screen: Screen[Any]) -> Iterator[TabbedContent | Tabs]:
    yield from screen.query(TabbedContent)
    yield from screen.query(Tabs)
