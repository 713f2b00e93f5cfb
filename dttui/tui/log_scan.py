"""Lines of a log by their numbers, what is looked for in them, and how far that look has come. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Protocol

SLICE = 50_000
"""Lines that are looked through at once."""
MOST_FOUND = 2_000_000
"""Lines that are remembered."""


_TAKEN_OUT = (b"\x1b", b"\r", b"\b", b"\x00", b"\x07")
"""What colours and bars are made of: lines are shown without."""


@dataclass(frozen=True)
class Sought:
    """What lines are looked for: those that have one of some words, in any case."""

    words: tuple[str, ...]
    pattern: re.Pattern[str]
    """Of a line as it is shown; what has none of the words needs no look."""

    @classmethod
    def text(cls, text: str) -> Sought:
        """Return what a person typed: in any case, unless there is a capital in it."""
        flags = re.IGNORECASE if text == text.lower() else 0
        return cls((text.lower(),), re.compile(re.escape(text), flags))

    def may_be_in(self, block: bytes) -> bool:
        """Whether a block of lines may have one of them; with what is taken out of lines that are shown, any may."""
        lower = block.lower()
        has_word = any(not word.isascii() or word.encode() in lower for word in self.words)
        return has_word or any(character in block for character in _TAKEN_OUT)


class NumberedLines(Protocol):
    """Lines by their numbers."""

    @property
    def generation(self) -> int:
        """Another one once the numbers are those of other lines."""

    @property
    def first(self) -> int:
        """Number of the first line that is kept."""

    @property
    def end(self) -> int:
        """Number behind that of the last."""

    def lines(self, start: int, count: int) -> list[str]:
        """Return lines as they are shown, fewer where there are not so many."""

    def find(self, wanted: Sought, start: int, most: int) -> list[int]:
        """Return which of so many lines have what is wanted."""


_ERRORS = ("error", "exception", "traceback", "fatal", "critical", "panic", "segmentation fault", "core dumped")
_WARNINGS = ("warn",)


def _words(*words: str) -> Sought:
    # `errors=0` and `no errors` are none.
    real = r"(?<!\bno )(?<!\b0 )error(?!s?\b\W{0,3}0\b)"
    pattern = "|".join(re.escape(word) for word in words).replace("error", real)
    return Sought(words, re.compile(pattern, re.IGNORECASE))


ERRORS = _words(*_ERRORS)
"""Lines that tell of an error."""
WARNINGS = _words(*_ERRORS, *_WARNINGS)
"""Lines that tell of an error or a warning."""


class Scan:
    """Looks through all lines for what is wanted, slice by slice, those that come later too."""

    def __init__(self, store: NumberedLines, wanted: Sought) -> None:
        self.wanted = wanted
        self.found: list[int] = []
        """Numbers of lines, in order."""
        self._store = store
        self._seen = store.first

    @property
    def share(self) -> float:
        """How much of what is there was looked through, from 0 to 1."""
        there = self._store.end - self._store.first
        return 1.0 if there <= 0 else min(1.0, max(0, self._seen - self._store.first) / there)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to look through, for now."""
        return self._seen >= self._store.end or len(self.found) >= MOST_FOUND

    def look(self) -> tuple[int, list[int]]:
        """Return what is found in the next slice, and where that ends: to be taken in, and for a thread of its own."""
        start = max(self._seen, self._store.first)
        until = min(start + SLICE, self._store.end)
        return until, self._store.find(self.wanted, start, until - start)

    def take(self, until: int, found: list[int]) -> None:
        """Take in what a look has found."""
        self.found += found
        self._seen = until

    def forget(self) -> None:
        """Leave out what is no more kept."""
        del self.found[: bisect_left(self.found, self._store.first)]

    def nearest(self, number: int, direction: int) -> int | None:
        """Return the next that was found after a line, or the last before it; around the end where there is none."""
        if not self.found:
            return None
        if direction > 0:
            return self.found[bisect_right(self.found, number) % len(self.found)]
        return self.found[bisect_left(self.found, number) - 1]

    def place(self, number: int) -> int | None:
        """Return the how manieth of what was found a line is, from 1."""
        at = bisect_left(self.found, number)
        return at + 1 if at < len(self.found) and self.found[at] == number else None
