"""Text that is wrapped where its script allows: between words, and between any two Chinese characters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import ClassVar

from rich.cells import cell_len
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Static

_NOT_FIRST = frozenset("·，。、；：！？）》」』】…,.;:!?)]}")
"""Not at the beginning of a line."""
_NOT_LAST = frozenset("（《「『【([{")
"""Not at the end of a line."""
_NO_BREAK = "\N{NO-BREAK SPACE}"
_BOUND = 5
"""Characters after a no-break space that stay with it: a verdict of a few Chinese characters is not torn in two."""
KEPT = 2048
"""Paragraphs of which it is kept where they break: of many lines, as of a job's events, few are new."""
_LABEL = re.compile(r"\S.*? {2,}")


class Prose(Static):
    """A Static whose lines break as a reader expects, in any language."""

    hangs: ClassVar[bool] = False
    """Whether what follows a label and two spaces stays right of the label on all its lines."""

    def show(self, content: Content) -> None:
        """Change the text; the same text again costs nothing."""
        if isinstance(self.content, Content) and content.is_same(self.content):
            return
        width, before = self.content_size.width, self._text
        self.update(content, layout=self._lines(content, width) != self._lines(before, width))

    def render(self) -> Content:
        """Return the text in lines that fit."""
        return Content("\n").join(wrapped(self._text, self.content_size.width, hangs=self.hangs))

    def _lines(self, content: Content, width: int) -> int:
        """Return how many lines a text takes; a new text on as many lines needs no new layout."""
        return len(wrapped(content, width, hangs=self.hangs)) if content.plain else 0

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return how many lines the text takes."""
        return self._lines(self._text, width)

    @property
    def _text(self) -> Content:
        return self.content if isinstance(self.content, Content) else Content(str(self.content))


def wrapped(content: Content, width: int, *, hangs: bool = False) -> list[Content]:
    """Return the content in lines of at most `width` cells; its own line breaks stay. For `hangs` see `Prose`."""
    lines = []
    for paragraph in content.split("\n", allow_blank=True):
        label = _LABEL.match(paragraph.plain) if hangs else None
        indent = cell_len(label[0]) if label else 0
        indent = indent if indent < width / 2 else 0
        spans = _lines(paragraph.plain, max(width, 1), indent)
        lines += [Content(" " * (indent if start else 0)) + paragraph[start:end] for start, end in spans]
    return lines


@lru_cache(KEPT)
def _lines(text: str, width: int, indent: int) -> tuple[tuple[int, int], ...]:
    """Return where each line begins and ends; those after the first have `indent` cells less room."""
    return tuple(_broken(text, width, indent))


def _broken(text: str, width: int, indent: int) -> Iterator[tuple[int, int]]:
    """Yield where each line begins and ends; spaces at a break belong to no line."""
    start = 0
    while start < len(text):
        end = _fits(text, start, width - (indent if start else 0))
        if end < len(text):
            end = _break_before(text, start, end)
        yield start, start + len(text[start:end].rstrip(" ")) or end
        start = end
        while start < len(text) and text[start] == " ":
            start += 1
    if not text:
        yield 0, 0


def _fits(text: str, start: int, width: int) -> int:
    """Return the end of the longest piece from `start` on that takes at most `width` cells, one character at least."""
    used = 0
    for index in range(start, len(text)):
        used += cell_len(text[index])
        if used > width:
            return max(index, start + 1)
    return len(text)


def _break_before(text: str, start: int, end: int) -> int:
    """Return the last place up to `end` where a line may break; `end` itself where there is none."""
    for place in range(end, start, -1):
        before, after = text[place - 1], text[place]
        if after == " ":
            if text[place + 1 : place + 2] == "·":
                continue
            return place
        if before == " " or (_is_wide(before) or _is_wide(after)):
            if after in _NOT_FIRST or before in _NOT_LAST:
                continue
            if _NO_BREAK in text[max(place - _BOUND, start) : place]:
                continue
            if before == " " and not text[start:place].strip(" ⚠✗✓○i•→"):
                continue
            return place
    return end


def _is_wide(character: str) -> bool:
    return cell_len(character) == 2
