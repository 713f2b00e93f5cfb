"""How what hosts read went: of each metric that is drawn one curve for all of a job's hosts, GPUs or ranks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from dtagent.protocol.metric_fields import aggregated, plotted_of

from dttui.jobs.curves import HISTORY, Axis, Curve, to_keep
from dttui.jobs.slot_trends import SlotTrends

if TYPE_CHECKING:
    from dtagent.protocol.telemetry import HostSample

STEP_S = 1.0
"""Between two points, at least."""
_MINUTE_S = 60.0


class HostCurves:
    """Keeps the points, the older the fewer."""

    def __init__(self) -> None:
        self._clocks: dict[str, tuple[float, float]] = {}
        """Node → time of its newest reading, by a clock that may be wrong and set back; seconds since its first."""
        self._points: dict[tuple[type, str], list[tuple[float, float]]] = {}
        """Kind of sample and field → position in minutes, and value."""
        self._elapsed_s = -STEP_S
        self.trends = SlotTrends()

    def take(self, newest: Iterable[tuple[str, HostSample, Collection[int]]], job_id: str) -> None:
        """Take the newest reading of each node, with its name and the GPUs that the job has there."""
        elapsed_s = 0.0
        told = list(newest)
        for name, sample, _gpu_ids in told:
            before, since_s = self._clocks.get(name, (sample.time, 0.0))
            since_s += max(0.0, sample.time - before)
            self._clocks[name] = sample.time, since_s
            elapsed_s = max(elapsed_s, since_s)
        if elapsed_s < self._elapsed_s + STEP_S:
            return
        self._elapsed_s = elapsed_s
        items: list[list[Any]] = [[], [], []]
        for name, sample, gpu_ids in told:
            self.trends.take(name, sample, gpu_ids, job_id)
            items[0].append(sample)
            items[1] += [gpu for gpu in sample.gpus if gpu.index in gpu_ids]
            items[2] += sample.ranks.get(job_id, [])
        for same in filter(None, items):
            self._add(elapsed_s / _MINUTE_S, same)

    def _add(self, minutes: float, items: list[Any]) -> None:
        kind: type = type(items[0])
        for name, declared in plotted_of(kind).items():
            value = aggregated(items, name)
            if value is not None:
                points = self._points.setdefault((kind, name), [])
                points.append((minutes, value * declared.unit.factor))
                if len(points) > HISTORY:
                    points[:] = [points[index] for index in to_keep([position for position, _value in points])]

    def curves(self) -> tuple[Curve, ...]:
        """Return the curves, one a plot."""
        found: dict[str | None, Curve] = {}
        for kind in dict.fromkeys(kind for kind, _name in self._points):
            for name, declared in plotted_of(kind).items():
                if (kind, name) in self._points:
                    points = tuple(self._points[kind, name])
                    found.setdefault(declared.plot, Curve(name, declared, Axis.MINUTE, points))
        return tuple(found.values())
