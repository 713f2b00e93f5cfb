"""Points in time that others tell of: a host's clock, a script or an old file may name one that no calendar has."""

from __future__ import annotations

LAST_MOMENT = 250_000_000_000.0
"""Unix time, within the year 9892: what is later, no clock has shown and no calendar of Python's can print."""


def moment_or(told: float, otherwise: float) -> float:
    """Return a Unix time that was told, or another where it is none."""
    return told if 0 <= told <= LAST_MOMENT else otherwise  # NaN is not between the two either.
