"""How fast training goes, by what ranks report one after another. Pure, and of bounded memory."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from dtagent.protocol.events import Metric

from dttui.jobs.figures import COMMUNICATION, SAMPLES, TOKENS

MOST = 2048
"""Spans and speeds that are kept; beyond it two neighbours become one."""
LEAST_WINDOW_S = 5.0
"""Of what is averaged before the middle is taken: reports arrive together that were made one after another."""
WINDOWS = 20
"""Averages of which the middle is taken, about; a checkpoint or a stall spoils but one of them."""


class TrainingSpeed:
    """Takes the reports of a job, of which the lowest rank's count: all ranks report the same steps."""

    def __init__(self) -> None:
        self._shares: list[float] = []
        """Of communication, as any rank measured them."""
        self._begin(None)

    def _begin(self, first: Metric | None) -> None:
        self._last = first
        self._spans: list[tuple[int, float]] = []
        """Steps and seconds between two reports."""
        self._speeds: dict[str, list[float]] = {TOKENS: [], SAMPLES: []}

    def take(self, metric: Metric) -> tuple[int, float] | None:
        """Take a report; return the steps and seconds since the one before, `None` where it says nothing of them."""
        if metric.communication_percent is not None:
            _add(self._shares, metric.communication_percent)
        if metric.is_of_payload or (self._last is not None and metric.rank > self._last.rank):
            return None
        if self._last is None or metric.rank < self._last.rank:
            self._begin(metric)
        for name, speeds in self._speeds.items():
            if (speed := metric.value(name)) is not None:
                _add(speeds, speed)
        before = self._last
        if metric.step is None or metric.time is None or before is None:
            return None
        self._last = metric
        if before.step is None or before.time is None:
            return None
        span = metric.step - before.step, metric.time - before.time
        if span[0] <= 0 or span[1] < 0:  # It began anew from a checkpoint, or a clock was set back.
            return None
        self._spans.append(span)
        if len(self._spans) >= MOST:
            pairs = zip(self._spans[::2], self._spans[1::2], strict=True)
            self._spans = [(one[0] + two[0], one[1] + two[1]) for one, two in pairs]
        return span

    def interrupt(self) -> None:
        """Take no time between the report before and the next one: another attempt begins."""
        if self._last is not None:
            self._last = replace(self._last, step=None)

    @property
    def step_time_s(self) -> float | None:
        """Seconds of a step, the usual one; `None` where reports are too few to tell."""
        spans = self._spans[1:]  # What is first compiled, loaded or filled is in the first.
        least_s = max(LEAST_WINDOW_S, sum(seconds for _steps, seconds in spans) / WINDOWS)
        windows: list[float] = []
        steps, seconds = 0, 0.0
        for span in spans:
            steps, seconds = steps + span[0], seconds + span[1]
            if seconds >= least_s:
                windows.append(seconds / steps)
                steps, seconds = 0, 0.0
        if not windows and seconds > 0:
            windows.append(seconds / steps)
        return median(windows) if windows else None

    def of(self, name: str) -> float | None:
        """Return the usual one of what ranks reported: a speed, or `communication_percent` of all of them."""
        values = self._shares if name == COMMUNICATION else self._speeds[name]
        return median(values) if values else None


def _add(values: list[float], value: float) -> None:
    values.append(value)
    if len(values) > MOST:
        values[:] = values[::2]
