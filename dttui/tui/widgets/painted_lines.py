"""Lines as they were painted last, so that of a line that changes only the cells are painted that do."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import takewhile

from textual.strip import Strip

MOST_LINES = 2000
"""That are kept; a screen has fewer."""


class PaintedLines:
    """Keeps the newest strip of each line, with what it was painted from."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, tuple[object, Strip]] = {}

    def get(self, line: Hashable, source: object, paint: Callable[[], Strip]) -> Strip:
        """Return a line's strip, painted only where its source is another than it was."""
        kept = self._lines.get(line)
        if kept is not None and kept[0] == source:
            return kept[1]
        if len(self._lines) >= MOST_LINES:
            self._lines.clear()
        strip = paint()
        self._lines[line] = source, strip
        return strip

    def changed(self, line: Hashable, source: object, paint: Callable[[], Strip]) -> tuple[int, int] | None:
        """Paint a line anew where its source is another; return its first and last cell that differ; `None` for none.

        Of a line that was not painted before all cells do.
        """
        kept = self._lines.get(line)
        strip = self.get(line, source, paint)
        return (0, strip.cell_length) if kept is None else differing_cells(kept[1], strip)

    def clear(self) -> None:
        """Forget all: widths, colours or times are others."""
        self._lines.clear()


def differing_cells(before: Strip, after: Strip) -> tuple[int, int] | None:
    """Return from which cell to which two strips of one width differ, by whole segments; `None` where they do not."""
    if before.cell_length != after.cell_length:
        return 0, after.cell_length
    pairs = list(zip(before, after, strict=False))
    same = sum(1 for _pair in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if same == len(before) == len(after):
        return None
    olds, news = list(before)[same:], list(after)[same:]
    backwards = zip(reversed(olds), reversed(news), strict=False)
    alike_behind = sum(one.cell_length for one, _two in takewhile(lambda pair: pair[0] == pair[1], backwards))
    start = sum(segment.cell_length for segment in list(after)[:same])
    return start, after.cell_length - alike_behind
