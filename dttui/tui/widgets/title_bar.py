"""The line at the top of a screen: what it is on the left, what matters now on the right."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static


class TitleBar(Horizontal):
    """One line. The right side is never cut; the left gives way."""

    def __init__(self, left: Content, right: Content | None = None) -> None:
        super().__init__()
        self._left = left
        self._right = right or Content("")

    def compose(self) -> ComposeResult:
        """Lay out both sides."""
        yield Static(self._left, id="title-left")
        yield Static(self._right, id="title-right")

    def show(self, left: Content, right: Content) -> None:
        """Change both sides."""
        for name, content, before in (("#title-left", left, self._left), ("#title-right", right, self._right)):
            if not content.is_same(before):
                self.query_one(name, Static).update(content, layout=name == "#title-right")
        self._left, self._right = left, right
