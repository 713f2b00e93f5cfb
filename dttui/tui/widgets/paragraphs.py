"""Text of which each paragraph is one thing: one may be under a cursor, and one may be clicked."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.geometry import Region
from textual.message import Message

from dttui.tui.widgets.prose import Prose, wrapped


class Paragraphs(Prose):
    """Tells which paragraph was clicked; the cursor comes from outside."""

    @dataclass
    class Clicked(Message):
        """A person clicked a paragraph."""

        index: int

    cursor: int | None = None
    """Of the paragraph that the cursor is on."""
    _wrapped: tuple[Content, int, list[list[Content]]] | None = None
    """The lines of each paragraph of a text, for a width."""

    def render(self) -> Content:
        """Return the lines, with those under the cursor marked."""
        lines: list[Content] = []
        for index, found in enumerate(self._paragraphs()):
            lines += [item.stylize("on $row-cursor") for item in found] if index == self.cursor else found
        return Content("\n").join(lines)

    def mark(self, index: int | None) -> None:
        """Put the cursor on a paragraph; `None` for no cursor."""
        self.cursor = index
        self.refresh()

    def region_of(self, index: int) -> Region:
        """Return the lines that a paragraph takes."""
        heights = [len(lines) for lines in self._paragraphs()]
        return Region(0, sum(heights[:index]), 1, heights[index])

    def on_click(self, event: events.Click) -> None:
        """Tell what was clicked; whoever has marked text with the mouse wants that alone."""
        event.stop()
        if self.text_selection is not None:
            return
        bottom = 0
        for index, lines in enumerate(self._paragraphs()):
            bottom += len(lines)
            if event.y < bottom:
                self.post_message(self.Clicked(index))
                return

    def _paragraphs(self) -> list[list[Content]]:
        text, width = self._text, self.content_size.width
        if self._wrapped is None or self._wrapped[0] is not text or self._wrapped[1] != width:
            paragraphs = text.split("\n", allow_blank=True)
            self._wrapped = text, width, [wrapped(item, width, hangs=self.hangs) for item in paragraphs]
        return self._wrapped[2]
