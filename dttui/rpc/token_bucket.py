"""So much a second and no more, but for what was not used for a while: what one host may cost all others."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """What may be spent: so much at once, and so much a second after that.

    Args:
        per_s: what comes back each second.
        burst: what may be spent at once by who has spent nothing for long.
        clock: tells the time, in seconds from any point on.
    """

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._left = burst
        self._counted_at = clock()

    def spend(self, amount: float) -> float:
        """Spend, beyond what is there too; return the seconds until all of it has come back."""
        self._count()
        self._left -= amount
        return max(0.0, -self._left / self._per_s)

    def takes(self, amount: float) -> bool:
        """Spend where there is so much; return whether there is."""
        self._count()
        if self._left < amount:
            return False
        self._left -= amount
        return True

    def left(self) -> float:
        """Return how much is there; below zero where more was spent."""
        self._count()
        return self._left

    def wait_s(self, amount: float) -> float:
        """Return the seconds until there is so much."""
        self._count()
        return max(0.0, (amount - self._left) / self._per_s)

    def _count(self) -> None:
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._counted_at) * self._per_s)
        self._counted_at = now
