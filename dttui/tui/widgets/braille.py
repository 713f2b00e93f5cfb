"""Curves drawn with the dots of braille characters, two across and four down in each cell. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

DOTS_ACROSS, DOTS_DOWN = 2, 4
_BLANK = 0x2800
_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Column and row of a dot in its cell → its bit."""
_DASH = 4
"""Dots across of a dash, and of the gap after it."""
Dot = tuple[int, int]
"""From the left, from the top."""


class Canvas:
    """Cells, each with the pen that was there last: a number, of which nought is none."""

    def __init__(self, columns: int, rows: int) -> None:
        self.width, self.height = columns * DOTS_ACROSS, rows * DOTS_DOWN
        """In dots."""
        self._bits = [bytearray(columns) for _row in range(rows)]
        self._pens = [bytearray(columns) for _row in range(rows)]
        self._letters: dict[tuple[int, int], str] = {}

    def draw(self, dots: Iterable[Dot | None], pen: int, *, is_dashed: bool = False) -> None:
        """Draw a line from dot to dot; at `None` the pen is lifted. A dot that stands alone is made large."""
        spans: dict[int, tuple[int, int]] = {}
        before: Dot | None = None
        count = 0
        for dot in dots:
            if dot is None:
                before = None
                continue
            count += 1
            _join(spans, before, dot)
            before = dot
        if count == 1 and before is not None:
            across, down = before
            spans = {column: (down - 1, down + 1) for column in (across - 1, across, across + 1)}
        for across, (top, bottom) in spans.items():
            if not 0 <= across < self.width or (is_dashed and across // _DASH % 2):
                continue
            column, bits = across // DOTS_ACROSS, _BITS[across % DOTS_ACROSS]
            for down in range(max(0, top), min(self.height - 1, bottom) + 1):
                row = down // DOTS_DOWN
                self._bits[row][column] |= bits[down % DOTS_DOWN]
                self._pens[row][column] = pen

    def write(self, column: int, row: int, letter: str, pen: int) -> None:
        """Have a letter in a cell, whatever is drawn there."""
        self._letters[row, column] = letter
        self._pens[row][column] = pen

    def runs(self, row: int) -> list[tuple[str, int]]:
        """Return the text of a row in pieces of one pen each."""
        cells = enumerate(zip(self._pens[row], self._bits[row], strict=True))
        return [
            ("".join(self._cell(row, column, bits) for column, (_pen, bits) in run), pen)
            for pen, run in groupby(cells, key=lambda cell: cell[1][0])
        ]

    def _cell(self, row: int, column: int, bits: int) -> str:
        letter = self._letters.get((row, column))
        return letter or (chr(_BLANK + bits) if bits else " ")


def _join(spans: dict[int, tuple[int, int]], before: Dot | None, dot: Dot) -> None:
    """Add to the dots of each column, from the highest to the lowest, what leads from one dot to another."""
    across, down = dot
    if before is None or before[0] == across:
        _widen(spans, across, down, down if before is None else before[1])
        return
    start, last = before
    for column in range(start + 1, across + 1):
        there = round(before[1] + (down - before[1]) * (column - start) / (across - start))
        _widen(spans, column, there, last + (there > last) - (there < last))
        last = there


def _widen(spans: dict[int, tuple[int, int]], across: int, one: int, other: int) -> None:
    top, bottom = min(one, other), max(one, other)
    known = spans.get(across)
    spans[across] = (top, bottom) if known is None else (min(top, known[0]), max(bottom, known[1]))
