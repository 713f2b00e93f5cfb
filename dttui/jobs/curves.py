"""What a job's reports look like as curves: by step where they name it, else by epoch or in their order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from dtagent.protocol.events import Metric

STEPS_PER_S = "steps_per_s"
"""A speed that only progress bars tell, which the agent reads; it counts where there is no better one."""
SPEEDS = ("tokens_per_s", "samples_per_s", STEPS_PER_S)
"""By how much each says."""

Points = tuple[tuple[float, float], ...]
"""Position and value, in order."""


class Axis(Enum):
    """What the position of a point is."""

    STEP = "step"
    EPOCH = "epoch"
    REPORT = "report"
    """Its place among the reports that are kept, from 1: trainers may name neither."""


@dataclass(frozen=True)
class Curves:
    """Loss and speed of a job."""

    axis: Axis
    loss: Points
    speed: Points
    measure: str
    """Of `SPEEDS`, what `speed` is."""


def curves(metrics: Iterable[Metric]) -> Curves:
    """Return the curves of one rank's reports; those without loss and speed are passed over.

    The axis is the first of step and epoch that at least half of the reports have; the others are then left out.
    """
    told = [metric for metric in metrics if metric.loss is not None or speed_of(metric) is not None]
    axis = Axis.REPORT
    for candidate in (Axis.STEP, Axis.EPOCH):
        if 2 * sum(_position(metric, candidate) is not None for metric in told) >= max(1, len(told)):
            axis = candidate
            break
    measure = next((name for name in SPEEDS if any(_value(metric, name) is not None for metric in told)), SPEEDS[0])
    return Curves(
        axis,
        _points(told, axis, lambda metric: metric.loss),
        _points(told, axis, lambda metric: _value(metric, measure)),
        measure,
    )


def spread(positions: Sequence[float], most: int) -> list[int]:
    """Return which of several points to keep so that they lie as evenly as they can: the first, the last, some between.

    Args:
        positions: of the points. One that goes back, as where a file began anew, counts as at the one before.
        most: how many to keep, and at times one more.
    """
    steps = [max(0.0, later - earlier) for earlier, later in pairwise(positions)]
    width = sum(steps) / max(1, most - 1)
    kept, way = [0] if positions else [], 0.0
    for index, step in enumerate(steps, 1):
        way += step
        if way >= width > 0 or index == len(steps):
            kept.append(index)
            way = 0.0
    return kept


def speed_of(metric: Metric) -> tuple[str, float] | None:
    """Return the speed that says most, by its name in `SPEEDS`."""
    return next(((name, value) for name in SPEEDS if (value := _value(metric, name)) is not None), None)


def _value(metric: Metric, measure: str) -> float | None:
    if measure == STEPS_PER_S:
        return metric.extra.get(measure)
    value: float | None = getattr(metric, measure)
    return value


def _points(told: list[Metric], axis: Axis, value_of: Callable[[Metric], float | None]) -> Points:
    found = []
    for number, metric in enumerate(told, 1):
        position, value = number if axis is Axis.REPORT else _position(metric, axis), value_of(metric)
        if position is not None and value is not None:
            found.append((float(position), value))
    return tuple(found)


def _position(metric: Metric, axis: Axis) -> float | None:
    return metric.step if axis is Axis.STEP else metric.epoch
