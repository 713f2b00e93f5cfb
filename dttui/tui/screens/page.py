"""What every screen and dialog is: it gets its styles once as it opens, where Textual gives them three times."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from textual import events, on
from textual.screen import Screen
from textual.worker import Worker, WorkType

from dttui.tui.in_step import in_step

ResultT = TypeVar("ResultT")


class Page(Screen[ResultT]):
    """A screen that knows how large it is before anything is on it, and is not styled anew as it is first shown.

    While it is composed anew its workers stand still: what they look for may not be there then.
    """

    _was_shown = False
    _composed: tuple[asyncio.Task[Any] | None, asyncio.Event] | None = None
    """Who composes it anew, and what tells that it is over."""

    _composes: asyncio.Lock | None = None

    async def recompose(self) -> None:
        """Make everything on it anew; who comes meanwhile does so after that."""
        self._composes = self._composes or asyncio.Lock()
        async with self._composes:
            is_over = asyncio.Event()
            self._composed = asyncio.current_task(), is_over
            try:
                await super().recompose()
            finally:
                self._composed = None
                is_over.set()

    def run_worker(
        self,
        work: WorkType[Any],
        name: str | None = "",
        group: str = "default",
        description: str = "",
        exit_on_error: bool = True,
        start: bool = True,
        exclusive: bool = False,
        thread: bool = False,
    ) -> Worker[Any]:
        """Begin work beside all else, which stands still while the screen is composed anew; a thread does not."""
        return super().run_worker(
            work if thread else partial(self._in_step, work),
            name,
            group,
            description,
            exit_on_error,
            start,
            exclusive,
            thread,
        )

    async def _in_step(self, work: WorkType[Any]) -> Any:
        return await in_step(work() if callable(work) else work, self._holds)

    def _holds(self) -> asyncio.Event | None:
        """What the worker that asks has to wait for; one that composes the screen does not wait for itself."""
        if self._composed is None or self._composed[0] is asyncio.current_task():
            return None
        return self._composed[1]

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
