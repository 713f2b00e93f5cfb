"""What one GPU of a job did over some time, as its host's telemetry has it: what watches and judges look at. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from dtagent.protocol.telemetry import GpuSample


class GpuPlace(NamedTuple):
    """Which GPU of a job it is."""

    node: str
    gpu: int
    """Index on its host."""


@dataclass(frozen=True)
class GpuReadings:
    """A GPU and its readings."""

    place: GpuPlace
    rank: int
    """That drives it."""
    type_name: str
    """Its name as the driver has it, or as it was declared; empty where it is not known."""
    readings: tuple[GpuSample, ...]
    """In order; none where its host tells nothing of it."""

    @property
    def is_cut_up(self) -> bool:
        """Whether MIG cuts it into instances: what is read of the whole says little of each."""
        return any(item.mig_enabled for item in self.readings)


def middle(values: Iterable[float | None]) -> float | None:
    """Return the median of what was read; `None` where nothing was."""
    known = [value for value in values if value is not None]
    return median(known) if known else None
