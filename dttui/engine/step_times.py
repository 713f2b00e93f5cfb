"""How long each rank takes for a step, by what it reports, and who is slower where none waits for another. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from dtagent.protocol.events import Metric

from dttui.diagnosis.lateness import Lateness

LEAST_STEPS = 4
"""That every rank has to have made before anything is said of their times."""
SLOWER = 1.25
"""Times as long as the others' median a step takes at least of one that is told as slower."""
LEAST_BEHIND = 2
"""Steps that it has made fewer than the others by then: ranks that wait for each other in each step never come so far
apart, however their reports arrive."""


@dataclass(frozen=True)
class _Report:
    step: int
    time: float


@dataclass(frozen=True)
class StepSpan:
    """What a rank has made of late."""

    steps: int
    seconds: float
    since_first: int
    """Steps since its first report."""


class StepTimes:
    """Takes the reports of all ranks; what is kept of each is of fixed size."""

    def __init__(self) -> None:
        self._first: dict[int, _Report] = {}
        self._since: dict[int, _Report] = {}
        self._newest: dict[int, _Report] = {}

    def take(self, metric: Metric) -> None:
        """Take in a report; of those that a rank gives of one step, by its trainer and its script, the first counts."""
        if metric.step is None or metric.time is None:
            return
        rank, report = metric.rank, _Report(metric.step, metric.time)
        newest = self._newest.get(rank)
        if newest is None or report.step < newest.step:  # It begins, or began anew from a checkpoint.
            self._first[rank] = self._since[rank] = self._newest[rank] = report
        elif report.step > newest.step:
            self._newest[rank] = report

    def spans(self) -> dict[int, StepSpan]:
        """Return what each rank has made since that was told last; empty while one of them has made too little."""
        found = {}
        for rank, newest in self._newest.items():
            since = self._since[rank]
            steps, seconds = newest.step - since.step, newest.time - since.time
            found[rank] = StepSpan(steps, seconds, newest.step - self._first[rank].step)
        if any(span.steps < LEAST_STEPS for span in found.values()):
            return {}
        self._since = dict(self._newest)
        return found


def slowness(spans: Mapping[int, StepSpan]) -> dict[int, Lateness]:
    """Return for each rank how much longer it takes for a step than the others' median; empty where that says nothing.

    The share is that of its own time. Ranks that train in step take equally long, whoever holds them up: of those none
    is told as slower.
    """
    if len(spans) < 2 or any(span.seconds <= 0 for span in spans.values()):
        return {}
    found = {}
    for rank, own in spans.items():
        others = [span for other, span in spans.items() if other != rank]
        own_s, usual_s = own.seconds / own.steps, median(span.seconds / span.steps for span in others)
        behind = median(span.since_first for span in others) - own.since_first
        is_slower = own_s >= SLOWER * usual_s and behind >= LEAST_BEHIND
        found[rank] = Lateness(rank, 1 - usual_s / own_s, own_s - usual_s) if is_slower else Lateness(rank, 0.0, 0.0)
    return found
