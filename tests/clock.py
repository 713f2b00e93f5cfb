"""Clocks for tests: one that stands still until a test lets time pass, and one that stands still while nothing runs."""

from __future__ import annotations

from collections.abc import Callable


class Clock:
    """In place of `time.monotonic`."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


TICK_S = 0.01
MOST_GAP_S = 0.02
"""That counts of a moment in which the process did not run."""


class Unhurried:
    """In place of `time.monotonic`, of which a loop asks at every `TICK_S`: where the machine stalls, so does this.

    So no limit is up that whoever is to keep it had no time to keep.
    """

    def __init__(self, whole: Callable[[], float]) -> None:
        self._whole = whole
        self._lost_s = 0.0
        self._seen_at = whole()

    def __call__(self) -> float:
        now = self._whole()
        self._lost_s += max(0.0, now - self._seen_at - MOST_GAP_S)
        self._seen_at = now
        return now - self._lost_s
