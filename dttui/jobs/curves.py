"""What a job's reports look like as curves: by step where they name it, else by epoch or in their order. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from dtagent.protocol.events import Metric
from dtagent.protocol.metric_fields import SPEED, Declared, plotted_of

PLOTTED = plotted_of(Metric)
HISTORY = 2000
"""Points of a metric that are kept for a plot, at most."""

Points = tuple[tuple[float, float], ...]
"""Position and value, in order."""


class Axis(Enum):
    """What the position of a point is."""

    STEP = "step"
    EPOCH = "epoch"
    REPORT = "report"
    """Its place among the reports that are kept, from 1: trainers may name neither."""
    MINUTE = "minute"
    """Since the first reading, in minutes; only hosts tell it."""


@dataclass(frozen=True)
class Curve:
    """One metric of a job as it went."""

    name: str
    """Its field."""
    declared: Declared
    axis: Axis
    points: Points


def curves(metrics: Sequence[Metric]) -> tuple[Curve, ...]:
    """Return the curves of one rank's reports, one a plot; those that tell nothing that is drawn are passed over.

    The axis is the first of step and epoch that at least half of the reports have; the others are then left out.
    """
    told = [metric for metric in metrics if any(metric.value(name) is not None for name in PLOTTED)]
    axis = Axis.REPORT
    for candidate in (Axis.STEP, Axis.EPOCH):
        if 2 * sum(_position(metric, candidate) is not None for metric in told) >= max(1, len(told)):
            axis = candidate
            break
    found: dict[str | None, Curve] = {}
    for name, declared in PLOTTED.items():
        points = _points(told, axis, name)
        if points and declared.plot not in found:
            found[declared.plot] = Curve(name, declared, axis, points)
    return tuple(found.values())


def to_keep(positions: Sequence[float]) -> list[int]:
    """Return which points of a long curve to keep: all of the recent ones, and half of the others."""
    older = len(positions) - HISTORY // 4
    return [*spread(positions[:older], older // 2), *range(older, len(positions))]


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
    """Return the speed that says most, by its field."""
    speeds = (name for name, declared in PLOTTED.items() if declared.plot == SPEED)
    return next(((name, value) for name in speeds if (value := metric.value(name)) is not None), None)


def _points(told: list[Metric], axis: Axis, name: str) -> Points:
    found = []
    for number, metric in enumerate(told, 1):
        position, value = number if axis is Axis.REPORT else _position(metric, axis), metric.value(name)
        if position is not None and value is not None:
            found.append((float(position), value))
    return tuple(found)


def _position(metric: Metric, axis: Axis) -> float | None:
    return metric.step if axis is Axis.STEP else metric.epoch
