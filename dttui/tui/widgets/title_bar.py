"""The top of a screen: what it is on the left, what matters now on the right, and below that what runs."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from dttui.tui.widgets.job_bar import JobBar


class TitleBar(Vertical):
    """One line, or two while a job runs. The right side is never cut; the left gives way."""

    def __init__(self, left: Content, right: Content | None = None, *, job_id: str = "") -> None:
        """Begin with both sides; `job_id` is the job that the screen is about."""
        super().__init__()
        self._left = left
        self._right = right or Content("")
        self._job_id = job_id

    def compose(self) -> ComposeResult:
        """Lay out both sides, and the line below."""
        with Horizontal(id="title-line"):
            yield Static(self._left, id="title-left")
            yield Static(self._right, id="title-right")
        yield JobBar(but=self._job_id)

    def show(self, left: Content, right: Content) -> None:
        """Change both sides."""
        for name, content, before in (("#title-left", left, self._left), ("#title-right", right, self._right)):
            if not content.is_same(before):
                self.query_one(name, Static).update(content, layout=name == "#title-right")
        self._left, self._right = left, right
