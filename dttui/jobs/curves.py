"""What a job's reports look like as curves: by step where they name it, else by epoch or in their order. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from dtagent.protocol.events import Metric
from dtagent.protocol.metric_fields import LOSS, PLAIN, SPEED, Declared, metrics_of, plotted_of

_FIRST = (LOSS, SPEED)
PLOTTED = dict(sorted(plotted_of(Metric).items(), key=lambda item: (*_FIRST, item[1].plot).index(item[1].plot)))
"""What of reports is drawn, by field: what matters most first, the rest as it is declared."""
_KNOWN = metrics_of(Metric)
MOST_OWN = 16
"""Numbers under names of a script's own that are drawn; of more the first."""
SMOOTHING = 0.02
"""Of a curve's length, the distance at which a point counts a third, 1/e, of the one at the place itself."""
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

    @property
    def plot(self) -> str:
        """The plot that it is drawn in: curves of the same are of the same thing."""
        return self.declared.plot or self.name

    def is_called(self, name: str) -> bool:
        """Whether a job that names a metric means this one."""
        known = (self.name, self.plot, self.declared.alert, *self.declared.names)
        return _OTHER_NAMES.get(name, name) in known


_OTHER_NAMES = {"throughput": SPEED, "utilization": "utilisation"}
"""What jobs call plots besides."""


class ChosenPlots(NamedTuple):
    """Which curves a job wants to be shown."""

    names: tuple[str, ...] = ()
    """What comes first, in this order."""
    is_all: bool = False
    """Whether nothing else is shown."""

    def arranged(self, found: Iterable[Curve]) -> tuple[Curve, ...]:
        """Return curves as they are shown: those chosen first, and the others behind, if none of those is there."""
        curves = list(found)
        chosen = {curve.plot: curve for name in self.names for curve in curves if curve.is_called(name)}
        others = () if self.is_all and chosen else (curve for curve in curves if curve.plot not in chosen)
        return (*chosen.values(), *others)


def curves(metrics: Sequence[Metric]) -> tuple[Curve, ...]:
    """Return the curves of one rank's reports, one a plot; those that tell nothing that is drawn are passed over.

    The axis is the first of step and epoch that at least half of the reports have; the others are then left out.
    """
    told = [metric for metric in metrics if metric.extra or any(metric.value(name) is not None for name in PLOTTED)]
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
    own = dict.fromkeys(name for metric in told for name in metric.extra if name not in _KNOWN)
    for name in list(own)[:MOST_OWN]:
        if points := _own_points(told, axis, name):
            found.setdefault(name, Curve(name, Declared(PLAIN, ""), axis, points))
    return tuple(found.values())


@dataclass(frozen=True)
class EarlierRun:
    """How the run of the same job before this one went."""

    job_id: str
    curves: tuple[Curve, ...]


class ReportCurves:
    """Makes the curves of reports anew only when there is another one."""

    def __init__(self) -> None:
        self._newest: Metric | None = None
        self._made: tuple[Curve, ...] = ()

    def of(self, metrics: Sequence[Metric]) -> tuple[Curve, ...]:
        """Return the same as `curves`."""
        newest = metrics[-1] if metrics else None
        if newest is not self._newest:  # A report takes the place of the one that it is joined with.
            self._newest, self._made = newest, curves(metrics)
        return self._made


def smoothed(points: Points) -> Points:
    """Return a curve without its noise: at each place the mean of the points up to there, the nearer the more.

    A point that lies d before the place weighs exp(-d / D) with D = SMOOTHING times the length of the curve; the sum is
    divided by that of the weights, so that the beginning is not drawn to nought. Of points at equal distances that is
    the exponential moving average, debiased. Where a job has gone back to a checkpoint it begins anew.
    """
    places = [place for place, _value in points]
    reach = SMOOTHING * (max(places) - min(places)) if places else 0.0
    if not reach:
        return points
    found, total, weight, before = [], 0.0, 0.0, points[0][0]
    for place, value in points:
        kept = math.exp((before - place) / reach) if place >= before else 0.0
        total, weight, before = total * kept + value, weight * kept + 1.0, place
        found.append((place, total / weight))
    return tuple(found)


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


def _own_points(told: list[Metric], axis: Axis, name: str) -> Points:
    return _placed(told, axis, [metric.extra.get(name) for metric in told])


def _points(told: list[Metric], axis: Axis, name: str) -> Points:
    return _placed(told, axis, [metric.value(name) for metric in told])


def _placed(told: list[Metric], axis: Axis, values: Iterable[float | None]) -> Points:
    found = []
    for number, (metric, value) in enumerate(zip(told, values, strict=True), 1):
        position = number if axis is Axis.REPORT else _position(metric, axis)
        if position is not None and value is not None:
            found.append((float(position), value))
    return tuple(found)


def _position(metric: Metric, axis: Axis) -> float | None:
    return metric.step if axis is Axis.STEP else metric.epoch
