"""By how much estimates are corrected for a kind of host, and by which jobs that is known. Values alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

NINE_OF_TEN = 1.645
"""Standard deviations to either side that nine cases of ten are within, of a normal distribution."""
MOST_SPREAD = 0.9


def nine_of_ten(scatter: float) -> float:
    """Return how far nine cases of ten are off at most, of that standard deviation of the logarithm."""
    return min(math.expm1(NINE_OF_TEN * scatter), MOST_SPREAD)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Which jobs something was learned from."""

    jobs: tuple[str, ...]
    """Their ids, the newest last."""
    first_at: float
    """Unix time at which the first of them ended."""
    last_at: float
    """The same of the last."""


@dataclass(frozen=True, slots=True)
class TimeCorrection:
    """How many times as long as by data sheets steps take on a kind of host, in one precision."""

    compute: float
    """Of kernels, and of the host that starts them."""
    traffic: float
    """Of what travels between ranks."""
    are_apart: bool
    """Whether the two could be told apart; else both are one number, that of the whole step."""
    scatter: float
    """Relative standard deviation of another job about its estimate, where it is like those."""
    source: Provenance
    centre: float = 0.0
    """Mean share of traffic in the steps of those, by data sheets, 0 to 1."""
    slope_error: float = 0.0
    """Relative standard error of what steps with no other share take more or less, for a share that is 1 higher."""

    @property
    def spread(self) -> float:
        """Relative: nine of ten other jobs like those take at most so much more or less."""
        return nine_of_ten(self.scatter)

    def spread_at(self, share: float) -> float:
        """Return the same for a job of whose corrected step so much is traffic, 0 to 1: the further off, the more."""
        sent = share / self.traffic
        away = sent / (sent + (1 - share) / self.compute) - self.centre
        return nine_of_ten(math.hypot(self.scatter, self.slope_error * away))


@dataclass(frozen=True, slots=True)
class MemoryCorrection:
    """What the fullest rank of a kind of host holds, against the sum of the estimate's parts: `factor`·sum + offset."""

    factor: float
    """1 where there is an offset."""
    offset_bytes: float
    """0 where there is a factor."""
    scatter: float
    """As of time."""
    source: Provenance

    @property
    def spread(self) -> float:
        """As of time."""
        return nine_of_ten(self.scatter)


@dataclass(frozen=True, slots=True)
class Correction:
    """What is known of one kind of host in one precision."""

    time: TimeCorrection | None
    memory: MemoryCorrection | None


@dataclass(frozen=True, slots=True)
class Learned:
    """What is known of one kind of host."""

    time: Mapping[str, TimeCorrection] = field(default_factory=dict)
    """By precision."""
    memory: MemoryCorrection | None = None
    """In any precision."""

    def of(self, precision: str) -> Correction | None:
        """Return what counts in a precision; `None` where nothing is known."""
        time = self.time.get(precision)
        return Correction(time, self.memory) if time is not None or self.memory is not None else None
