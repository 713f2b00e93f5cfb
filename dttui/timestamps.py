"""Points in time that others tell of, and what lies between two: clocks are set, and hosts differ."""

from __future__ import annotations

import time

LATEST_TIMESTAMP = 250_000_000_000.0
"""Unix time, within the year 9892: what is later, no clock has shown and no calendar of Python's can print."""


def timestamp_or(told: float, otherwise: float) -> float:
    """Return a Unix time that was told, or another where it is none."""
    return told if 0 <= told <= LATEST_TIMESTAMP else otherwise  # NaN is not between the two either.


def elapsed_s(since: float, until: float | None = None) -> float:
    """Return the seconds from one Unix time to another, now without it; 0 where the clock was set back between them."""
    return max(0.0, (time.time() if until is None else until) - since)


def unix_time_in(seconds: float) -> float:
    """Return the Unix time, by this machine's clock, in so many seconds from now; in fewer than 0: so long ago."""
    return time.time() + seconds


class SteadyClock:
    """Tells Unix time that never goes back: where this machine's clock is set back, it goes on from where it was.

    Args:
        begun: a Unix time that was told already.
    """

    def __init__(self, begun: float = 0.0) -> None:
        self._told = begun
        self._looked_at = time.monotonic()

    def now(self) -> float:
        """Return the Unix time of this moment."""
        looked_at = time.monotonic()
        self._told = max(time.time(), self._told + looked_at - self._looked_at)
        self._looked_at = looked_at
        return self._told
