"""By how much estimates are corrected for a kind of host, and by which jobs that is known. Values alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    spread: float
    """Relative: in nine cases of ten another job's step takes at most so much more or less."""
    source: Provenance


@dataclass(frozen=True, slots=True)
class MemoryCorrection:
    """What the fullest rank of a kind of host holds, against the sum of the estimate's parts: `factor`·sum + offset."""

    factor: float
    """1 where there is an offset."""
    offset_bytes: float
    """0 where there is a factor."""
    spread: float
    """As of time."""
    source: Provenance


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
