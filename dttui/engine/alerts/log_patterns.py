"""Looks for regular expressions in the output of ranks, within limits that hold whatever the expressions are.

A line counts up to its 4,096th byte. Python's matching can take time without end, and lets no other thread in; but it
takes signals, so a timer of the process's CPU time ends it. It is the main thread that must call this.
"""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType

from dttui.sanitize import clean

MAX_LINE_BYTES = 4096
LINE_BUDGET_S = 0.05
"""CPU time that the expressions may take for one line; a common one takes a thousandth of a millisecond."""
MAX_STRIKES = 3
"""Lines that an expression may be too slow for before it is looked for no more."""
SHARE = 0.2
"""Of the time, how much may go into matching; more is left out, so that logs and heartbeats do not wait."""
WINDOW_S = 1.0


class _TooSlow(Exception):
    """Raised into a search by the timer."""


@dataclass
class _Rest:
    """What came of a line that is not at its end yet."""

    data: bytes = b""
    is_overlong: bool = False


@dataclass
class LogPatterns:
    """Expressions, and the unfinished lines of all streams."""

    patterns: Sequence[re.Pattern[str] | None]
    """`None` holds the place of what is none."""
    too_slow: set[int] = field(default_factory=set)
    """Indices of those that are looked for no more."""
    skipped_bytes: int = 0
    """What was left out, since there was too much at a time."""
    _strikes: dict[int, int] = field(default_factory=dict)
    _rests: dict[tuple[str, str], _Rest] = field(default_factory=dict)
    _window_at: float = 0.0
    _spent_s: float = 0.0

    def feed(self, node: str, stream: str, data: bytes) -> list[tuple[int, str, int]]:
        """Return what the lines match that `data` completes: index of the expression, the line, where it matches."""
        active = [(i, item) for i, item in enumerate(self.patterns) if item is not None and i not in self.too_slow]
        if not active:
            return []
        if time.monotonic() - self._window_at > WINDOW_S:
            self._window_at, self._spent_s = time.monotonic(), 0.0
        rest = self._rests.setdefault((node, stream), _Rest())
        if self._spent_s > SHARE * WINDOW_S:
            self.skipped_bytes += len(data)
            rest.data, rest.is_overlong = b"", not data.endswith(b"\n")
            return []
        began = time.thread_time()
        found = self._search(_lines(rest, data), active)
        self._spent_s += time.thread_time() - began
        return found

    def _search(self, lines: list[str], active: list[tuple[int, re.Pattern[str]]]) -> list[tuple[int, str, int]]:
        found = []
        with _timer() as restart:
            for line in lines:
                for index, pattern in active:
                    if index in self.too_slow:
                        continue
                    try:
                        restart(LINE_BUDGET_S)
                        match = pattern.search(line)
                        restart(0.0)
                    except _TooSlow:
                        self._strike(index)
                        continue
                    if match is not None:
                        found.append((index, line, match.start()))
        return found

    def _strike(self, index: int) -> None:
        self._strikes[index] = self._strikes.get(index, 0) + 1
        if self._strikes[index] >= MAX_STRIKES:
            self.too_slow.add(index)


def _lines(rest: _Rest, data: bytes) -> list[str]:
    """Return the lines that `data` completes, and the beginnings of overlong ones; a carriage return ends one too."""
    *whole, last = (rest.data + data.replace(b"\r", b"\n")).split(b"\n")
    if rest.is_overlong and whole:
        whole, rest.is_overlong = whole[1:], False
    elif rest.is_overlong:
        last = b""
    if len(last) > MAX_LINE_BYTES:
        whole, last, rest.is_overlong = [*whole, last], b"", True
    rest.data = last
    return [clean(line[:MAX_LINE_BYTES].decode(errors="replace")) for line in whole if line]


class _Timer:
    """Raises _TooSlow into the main thread after so much CPU time; a call with 0 stops it."""

    def __init__(self) -> None:
        self.is_armed = False

    def __call__(self, seconds: float) -> None:
        # The flag first where it stops: a signal that is already on its way then finds that it comes too late.
        if not seconds:
            self.is_armed = False
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        self.is_armed = seconds > 0

    def expire(self, _number: int, _frame: FrameType | None) -> None:
        """Handle the signal."""
        if self.is_armed:
            self.is_armed = False
            raise _TooSlow


@contextlib.contextmanager
def _timer() -> Iterator[_Timer]:
    timer = _Timer()
    before = signal.signal(signal.SIGVTALRM, timer.expire)
    try:
        yield timer
    finally:
        timer.is_armed = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
