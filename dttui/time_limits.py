"""By when all that is done for one caller must be done. Knows nothing of what that is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_UNTIL: ContextVar[float | None] = ContextVar("until", default=None)
"""On the monotonic clock: by when all that is done for one caller must be done."""
TELLING_SHARE, TELLING_S = 0.25, 1.0
"""What of the time is kept for telling what was done by then."""


@contextmanager
def ending(until: float | None) -> Iterator[None]:
    """Have a bound count for all that is done inside, where one is given; by the monotonic clock."""
    token = _UNTIL.set(until if until is not None else _UNTIL.get())
    try:
        yield
    finally:
        _UNTIL.reset(token)


def left_for_work_s() -> float | None:
    """Return how much of the bound is left for work, and not for telling what came of it; `None` without one."""
    until = _UNTIL.get()
    if until is None:
        return None
    left_s = until - time.monotonic()
    return max(0.0, left_s - min(TELLING_S, left_s * TELLING_SHARE))
