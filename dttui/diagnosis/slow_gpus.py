"""Which GPU of a job is slower than its like, by clock, or by heat that holds it back. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median_high, median_low
from typing import Any

from dtagent.protocol.sentences import HELD_BACK
from dtagent.protocol.telemetry import GpuSample

from dttui.agent_words import agent_term
from dttui.diagnosis.gpu_readings import GpuPlace, GpuReadings, middle
from dttui.i18n import Message, joined, msg

LOADED_PERCENT = 50
"""A GPU that computes for a smaller share of the time may lower its clock by itself."""
SLOW_SHARE = 0.85
"""Of the others' clock: below it a GPU is slow, whatever holds it back."""
HEATED_SHARE = 0.95
"""The same where heat holds it back."""
HOTTER_C = 5.0
"""Than the others: by less GPUs differ by where they sit."""
MORE_POWER = 1.25
"""Times the others' power: who draws more has more to do, and its clock is lower for that, as of a rank that saves a
checkpoint while the others wait and spin."""
LEAST_READINGS = 2


class SlowBy(Enum):
    """What a GPU is slow by."""

    CLOCK = "clock"
    TEMPERATURE = "temperature"


@dataclass(frozen=True)
class SlowGpu:
    """A GPU that is slower than the job's others of its type."""

    place: GpuPlace
    rank: int
    by: SlowBy
    clock_mhz: float | None
    others_clock_mhz: float | None
    temperature_c: float | None
    others_temperature_c: float | None
    reasons: tuple[str, ...]
    """What the driver says holds it back, as samples have it."""

    @property
    def share(self) -> float | None:
        """The share of the job's time that it costs where all wait for it, 0 to 1; `None` where no clock is read."""
        if self.clock_mhz is None or not self.others_clock_mhz:
            return None
        return max(0.0, 1 - self.clock_mhz / self.others_clock_mhz)


@dataclass(frozen=True)
class _Figures:
    """What stands for the readings of one GPU."""

    of: GpuReadings
    is_loaded: bool
    clock_mhz: float | None
    temperature_c: float | None
    power_w: float | None
    reasons: tuple[str, ...]


def slow_gpus(found: Iterable[GpuReadings]) -> dict[GpuPlace, SlowGpu | None]:
    """Return of each GPU that can be judged how it is slow, `None` where it is not.

    GPUs are compared with the job's others of their type and memory, and only while all of those compute, for else one
    may have lowered its clock by itself. One that cannot be read, or that MIG cuts up, is not compared.

    Args:
        found: the job's GPUs over the same seconds.
    """
    alike: dict[tuple[str, int | None], list[_Figures]] = {}
    for item in found:
        if (figures := _figures(item)) is not None:
            key = item.type_name, item.readings[-1].memory_total_mib
            alike.setdefault(key, []).append(figures)
    judged: dict[GpuPlace, SlowGpu | None] = {}
    for group in alike.values():
        if len(group) > 1 and all(item.is_loaded for item in group):
            judged |= _judged(group)
    return judged


def sentence(slow: SlowGpu, seconds: float) -> Message:
    """Return in words how a GPU is slower, for how long it has been so and what that costs."""
    values: dict[str, Any] = {
        "gpu": slow.place.gpu,
        "host": slow.place.node,
        "rank": slow.rank,
        "seconds": seconds,
        "clock": slow.clock_mhz,
        "usual": slow.others_clock_mhz,
    }
    if slow.share is None:
        message = msg("for {seconds:.0f} s GPU {gpu} on {host} (rank {rank}) has been held back", **values)
    else:
        message = msg(
            "for {seconds:.0f} s GPU {gpu} on {host} (rank {rank}) has run at {clock:.0f} MHz, the others at "
            "{usual:.0f} MHz, which costs up to {share} of the time", share=f"{slow.share:.0%}", **values)  # fmt: skip
    if slow.by is SlowBy.TEMPERATURE:
        message = msg("{message}: it is at {temperature:.0f} °C, the others at {usual:.0f} °C",
                      message=message, temperature=slow.temperature_c, usual=slow.others_temperature_c)  # fmt: skip
    if slow.reasons:
        reasons = joined(", ", map(agent_term, slow.reasons))
        message = msg("{message} (held back by {reasons})", message=message, reasons=reasons)
    return message


def hint_of(place: GpuPlace) -> Message:
    """Return what to do about it."""
    return msg("See on {host} what slows it: `nvidia-smi -q -i {gpu} -d PERFORMANCE,TEMPERATURE,CLOCK`.",
               host=place.node, gpu=place.gpu)  # fmt: skip


def _figures(item: GpuReadings) -> _Figures | None:
    told = [sample for sample in item.readings if sample.utilization_percent is not None]
    if len(told) < LEAST_READINGS or item.is_cut_up:
        return None
    # Those between two steps, or of a checkpoint that is saved, are of a GPU that may rest.
    loaded = [sample for sample in told if _load(sample) >= LOADED_PERCENT]
    said = Counter(reason for sample in loaded for reason in sample.throttle_reasons or ())
    return _Figures(
        item,
        2 * len(loaded) > len(told),
        middle(sample.sm_clock_mhz for sample in loaded),
        middle(sample.temperature_c for sample in loaded),
        middle(sample.power_w for sample in loaded),
        tuple(reason for reason, count in said.items() if 2 * count >= len(loaded)),
    )


def _load(sample: GpuSample) -> int:
    return sample.utilization_percent or 0


def _judged(group: Sequence[_Figures]) -> dict[GpuPlace, SlowGpu | None]:
    """Judge GPUs that compute; where half of them are slow, the other half says what is usual."""
    clocks = [item.clock_mhz for item in group if item.clock_mhz is not None]
    heats = [item.temperature_c for item in group if item.temperature_c is not None]
    powers = [item.power_w for item in group if item.power_w is not None]
    clock = median_high(clocks) if len(clocks) > 1 else None
    heat = median_low(heats) if len(heats) > 1 else None
    power = median_low(powers) if len(powers) > 1 else None
    return {item.of.place: _slow(item, clock, heat, power) for item in group}


def _slow(item: _Figures, clock: float | None, heat: float | None, power: float | None) -> SlowGpu | None:
    ratio = item.clock_mhz / clock if item.clock_mhz is not None and clock else None
    is_held = not HELD_BACK.isdisjoint(item.reasons)
    is_hotter = item.temperature_c is not None and heat is not None and item.temperature_c >= heat + HOTTER_C
    does_more = item.power_w is not None and power is not None and item.power_w > MORE_POWER * power
    if is_held and is_hotter and (ratio is None or ratio < HEATED_SHARE):
        by = SlowBy.TEMPERATURE
    elif ratio is not None and ratio < SLOW_SHARE and (is_held or not does_more):
        by = SlowBy.CLOCK
    else:
        return None
    return SlowGpu(item.of.place, item.of.rank, by, item.clock_mhz, clock, item.temperature_c, heat, item.reasons)


@dataclass
class _Row:
    """How one GPU was judged of late."""

    slow: list[SlowGpu]
    """In a row."""
    since: float
    """Unix time of the first of them."""
    fine: int = 0
    """How often in a row it was not slow since."""


class SlowGpuRows:
    """For how long each GPU has been slow without a break. A look that says nothing of one breaks nothing.

    Args:
        looks: in a row, after which a GPU is named.
        looks_back: in a row, after which it is slow no more.
    """

    def __init__(self, looks: int, looks_back: int) -> None:
        self._looks = looks
        self._looks_back = looks_back
        self._rows: dict[GpuPlace, _Row] = {}

    def take(self, at: float, judged: Mapping[GpuPlace, SlowGpu | None]) -> None:
        """Take in how GPUs were judged by readings since Unix time `at`."""
        for place, slow in judged.items():
            row = self._rows.get(place)
            if slow is not None:
                if row is None or row.fine:
                    row = self._rows[place] = _Row([], at)
                row.slow = [*row.slow, slow][-self._looks :]
            elif row is not None:
                row.fine += 1
            else:
                self._rows[place] = _Row([], at, fine=1)

    def named(self) -> list[tuple[SlowGpu, float]]:
        """Return those that have been slow for long enough, each with since when, Unix time; the slowest one first."""
        rows = [row for row in self._rows.values() if not row.fine and len(row.slow) >= self._looks]
        return sorted(((row.slow[-1], row.since) for row in rows), key=lambda item: -(item[0].share or 0.0))

    def is_slow(self, place: GpuPlace) -> bool:
        """Whether a GPU was slow when something was last said of it."""
        row = self._rows.get(place)
        return row is not None and not row.fine

    def is_over(self, place: GpuPlace) -> bool:
        """Whether a GPU that was named has been as fast as the others for long enough."""
        row = self._rows.get(place)
        return row is not None and row.fine >= self._looks_back

    def clear(self) -> None:
        """Begin anew."""
        self._rows.clear()
