"""What every screen and dialog is: it gets its styles once as it opens, where Textual gives them three times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from textual import events, on
from textual.screen import Screen

ResultT = TypeVar("ResultT")


class Page(Screen[ResultT]):
    """A screen that knows how large it is before anything is on it, and is not styled anew as it is first shown."""

    _was_shown = False

    @on(events.Compose)
    def _know_size(self) -> None:
        """Take the classes of the terminal's size, by which all that is laid out next is styled."""
        width, height = self.app.size
        wide, tall = self.app.HORIZONTAL_BREAKPOINTS or [], self.app.VERTICAL_BREAKPOINTS or []
        fitting = {_fitting(width, wide), _fitting(height, tall)}
        self.update_classes({name: name in fitting for _least, name in (*wide, *tall)}, animate=False)

    @on(events.ScreenResume)
    def _keep_styles(self, event: events.ScreenResume) -> None:
        """Have styles made anew that may have changed while another screen was shown; not the first time."""
        event.refresh_styles = event.refresh_styles and self._was_shown
        self._was_shown = True


def _fitting(size: int, breakpoints: Sequence[tuple[int, str]]) -> str:
    return max((item for item in breakpoints if item[0] <= size), default=(0, ""))[1]
