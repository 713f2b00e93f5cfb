"""Notices in the reports of a job's ranks what a person should look at: NaN and spikes. Pure; one for an attempt."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from dtagent.protocol.events import Metric
from dtagent.protocol.metric_fields import metrics_of

from dttui.i18n import msg

WINDOW = 64
"""Reports of one rank that say what is usual."""
MIN_REPORTS = 20
"""Before so many nothing counts as a spike: the first steps of a training are wild."""
DEVIATIONS = 10.0
"""How far above the usual a spike is, in deviations that are estimated robustly (1.4826 · MAD)."""
MIN_RISE = {name: item.spike for name, item in metrics_of(Metric).items() if item.spike is not None}
"""Watched metric → by what share of the usual a spike exceeds it at least: a steady series hardly deviates."""
RECENT = 5
"""Of them the last, by which it is told what a metric rose from: a loss falls all the while."""
QUIET_REPORTS = 50
"""After an alert, for how many reports none of its kind follows from any rank."""
MOST_SERIES = 8192
"""That are watched, a few KiB each, in the order in which ranks report first: what breaks breaks in many of them."""
LOOK_BACK_REPORTS = 2 * max(WINDOW, QUIET_REPORTS)
"""Of one rank that a watch has to be fed to be as one that saw them all: trainer and script may tell of a step both."""


@dataclass(frozen=True)
class Anomaly:
    """One thing to look at."""

    metric: str
    """Its field."""
    rank: int
    step: int | None
    value: float | None
    """`None` where it was no number."""
    usual: float | None
    """Median of the last reports before."""

    @property
    def code(self) -> str:
        """Names the kind of alert."""
        return f"{self.metric.replace('_', '-')}-{'not-finite' if self.value is None else 'spike'}"

    @property
    def data(self) -> dict[str, Any]:
        """As the event METRIC_ALERT carries it."""
        values = {"metric": self.metric, "step": self.step, "value": self.value, "usual": self.usual}
        return {"code": self.code, **{name: value for name, value in values.items() if value is not None}}


@dataclass
class _Series:
    """One metric of one rank."""

    values: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    reports: int = 0
    is_broken: bool = False
    """Whether the last report was no number."""


class MetricWatch:
    """Looks at reports in the order of their arrival; ranks of a job go through the same steps together."""

    def __init__(self) -> None:
        self._series: dict[tuple[int, str], _Series] = {}
        self._told_at: dict[str, int] = {}
        """Code → how many reports the rank that was told of had made by then."""

    def feed(self, metric: Metric) -> list[Anomaly]:
        """Take one report; return what there is to tell."""
        found = []
        for name in MIN_RISE:
            value = getattr(metric, name)
            if value is None and name not in (metric.not_finite or ()):
                continue
            if (metric.rank, name) not in self._series and len(self._series) >= MOST_SERIES:
                continue
            series = self._series.setdefault((metric.rank, name), _Series())
            series.reports += 1
            if _is_new(series, name, value):
                before = list(series.values)[-RECENT:]
                alert = Anomaly(name, metric.rank, metric.step, value, median(before) if before else None)
                if series.reports >= self._told_at.get(alert.code, -QUIET_REPORTS) + QUIET_REPORTS:
                    self._told_at[alert.code] = series.reports
                    found.append(alert)
            series.is_broken = value is None
            if value is not None:
                series.values.append(value)
        return found


def anomaly_message(host: str, alert: Anomaly) -> str:
    """Return in words what was noticed in a report from a host."""
    where = msg("rank {rank} on {host}", rank=alert.rank, host=host)
    if alert.step is not None:
        where = msg("{where}, step {step:,}", where=where, step=alert.step)
    measure = msg(metrics_of(Metric)[alert.metric].label or alert.metric)
    if alert.value is None:
        return msg("the {measure} is not a number any more: {where}", measure=measure, where=where)
    values = {"measure": measure, "where": where, "value": alert.value, "usual": alert.usual}
    return msg("the {measure} jumped to {value:.4g} from about {usual:.4g}: {where}", **values)


def _is_new(series: _Series, name: str, value: float | None) -> bool:
    if value is None:
        return not series.is_broken
    if len(series.values) < MIN_REPORTS:
        return False
    usual = median(series.values)
    deviation = 1.4826 * median(abs(item - usual) for item in series.values)
    rise = max(DEVIATIONS * deviation, MIN_RISE[name] * abs(usual))
    return value > usual + rise and value > max(series.values)
