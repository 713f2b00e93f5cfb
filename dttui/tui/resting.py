"""Which screens rest: what nobody can see is not kept up to date."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.app import App
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget


def every(widget: Widget, seconds: float, look: Callable[[], object]) -> Timer:
    """Have a widget look now and then, unless its screen is covered.

    It looks in its turn among its other messages: not while it is being composed anew.

    Args:
        widget: a screen, or a part of one.
        seconds: from one look to the next.
        look: shows what is new.
    """

    def look_unless_covered() -> None:
        if not is_covered(widget.screen):
            widget.call_next(look)

    return widget.set_interval(seconds, look_unless_covered)


LENT = "shell"
"""Group of the workers that lend the terminal to another program."""


def is_under_way(app: App[Any], group: str) -> bool:
    """Whether a worker of a group has not ended."""
    return any(worker.group == group and not worker.is_finished for worker in app.workers)


def is_lent_out(app: App[Any]) -> bool:
    """Whether the terminal is another program's for now: nothing may be written there."""
    return is_under_way(app, LENT)


def is_covered(screen: Screen[Any]) -> bool:
    """Whether another screen lies over all of a screen; a dialog does not."""
    for other in reversed(screen.app.screen_stack):
        if other is screen:
            return False
        if not other.is_modal:
            return True
    return True
