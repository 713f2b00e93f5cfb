"""The line under the title of each screen: what runs, and what has failed. It takes no room where that is nothing."""

from __future__ import annotations

from typing import Protocol, cast

from textual.content import Content
from textual.widgets import Static


class TellsJobs(Protocol):
    """An app that knows the jobs; its `briefs` change with them."""

    def job_line(self, but: str) -> Content:
        """Return the line, of all jobs but one."""


class JobBar(Static):
    """Shows what the app knows; a click leads there, as a key does."""

    def __init__(self, but: str = "") -> None:
        """Tell of all jobs `but` the one that the screen itself is about."""
        super().__init__()
        self._but = but
        self._line = Content("")

    def on_mount(self) -> None:
        """Follow what the app knows."""
        self.display = False
        self.watch(self.app, "briefs", self._show)

    def on_resize(self) -> None:
        """Tell as much as there is room for."""
        self._show()

    async def on_click(self) -> None:
        """Go there."""
        await self.run_action("app.watch_job")

    def _show(self) -> None:
        found = cast(TellsJobs, self.app).job_line(self._but)
        if not found.is_same(self._line):
            self._line = found
            self.update(found, layout=False)
            self.display = bool(found)
