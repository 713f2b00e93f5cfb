"""How a job trained, step by step, by what its lowest rank has reported: read once, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from dtagent.protocol.events import Metric

from dttui.jobs.figures import SAMPLES, TOKENS
from dttui.jobs.following import GrowingFile
from dttui.jobs.metrics import MAX_LINE_BYTES, parse_report
from dttui.jobs.training_speed import TrainingSpeed

MOST_STEPS = 1 << 16
"""That are kept; of more, those that a hash of their number chooses, so that two jobs keep the same."""
_HASH_BITS = 32
_FACTOR = 2654435761
"""Knuth's multiplicative hash: of steps at equal distances it chooses some evenly."""


@dataclass(frozen=True)
class Step:
    """What was reported of one step."""

    loss: float | None = None
    tokens_per_s: float | None = None
    samples_per_s: float | None = None
    steps: int = 0
    """Since the report before; 0 where that is not known, as of the first of an attempt."""
    seconds: float = 0.0
    """That those took."""


class Course:
    """Takes reports in their order, attempt after attempt; of a step that was made again the last one counts."""

    def __init__(self) -> None:
        self.speed = TrainingSpeed()
        self.steps: dict[int, Step] = {}
        self._rank: int | None = None
        self._attempt = 0
        self._current: tuple[int, int] | None = None
        """Attempt and step of the newest report."""
        self._dropped_bits = 0

    @classmethod
    def read(cls, path: Path) -> Course:
        """Return that of a job's metrics.jsonl; what is torn or no report is passed over."""
        course = cls()
        for attempt, metric in read_reports(path):
            course.take(attempt, metric)
        return course

    def take(self, attempt: int, metric: Metric) -> None:
        """Take a report of an attempt in."""
        if metric.is_of_payload or (self._rank is not None and metric.rank > self._rank):
            return
        if metric.rank != self._rank:
            self._rank, self._current = metric.rank, None
            self.steps.clear()
        if attempt != self._attempt:
            self._attempt = attempt
            self.speed.interrupt()
        span = self.speed.take(metric)
        if metric.step is None or not self._is_kept(metric.step):
            return
        is_more = self._current == (attempt, metric.step)
        self._current = attempt, metric.step
        step = self.steps.get(metric.step, Step()) if is_more else Step()
        if span is not None:
            step = replace(step, steps=span[0], seconds=span[1])
        told: dict[str, Any] = {name: metric.value(name) for name in ("loss", TOKENS, SAMPLES)}
        self.steps[metric.step] = replace(step, **{name: value for name, value in told.items() if value is not None})
        if len(self.steps) > MOST_STEPS:
            self._dropped_bits += 1
            self.steps = {number: kept for number, kept in self.steps.items() if self._is_kept(number)}

    def _is_kept(self, step: int) -> bool:
        return (step * _FACTOR & ((1 << _HASH_BITS) - 1)) >> (_HASH_BITS - self._dropped_bits) == 0


class Both(NamedTuple):
    """One step of two jobs."""

    step: int
    first: Step
    second: Step
    first_step_s: float | None
    """Seconds of a step since the row before; `None` where they are not known."""
    second_step_s: float | None


def side_by_side(first: Course, second: Course, most: int) -> list[Both]:
    """Return steps that both have reported, at most so many and evenly from all of them: the first and the last too."""
    common = sorted(first.steps.keys() & second.steps.keys())
    if len(common) > most:
        common = [common[index * (len(common) - 1) // (most - 1)] for index in range(most)]
    times = [_step_times(course, common) for course in (first, second)]
    return [
        Both(step, first.steps[step], second.steps[step], one, two)
        for step, one, two in zip(common, *times, strict=True)
    ]


def _step_times(course: Course, rows: list[int]) -> list[float | None]:
    """Return the seconds of a step up to each of some steps, from the one before it on."""
    spans = _spread(course)
    found: list[float | None] = []
    index = 0
    for row in rows:
        steps, seconds = 0, 0.0
        while index < len(spans) and spans[index][0] <= row:
            steps, seconds = steps + spans[index][1], seconds + spans[index][2]
            index += 1
        found.append(seconds / steps if steps and seconds else None)
    return found


def _spread(course: Course) -> list[tuple[int, int, float]]:
    """Return step, steps and seconds of each span; of reports that came together, all the same seconds a step."""
    spans: list[tuple[int, int, float]] = []
    together: list[tuple[int, int]] = []
    seconds = 0.0
    for number, step in [*sorted(course.steps.items()), (0, Step(steps=1, seconds=1.0))]:
        if together and (step.seconds or not step.steps):
            made = sum(steps for _number, steps in together)
            spans += [(last, steps, seconds * steps / made) for last, steps in together]
            together = []
        if step.seconds:
            seconds = step.seconds
        if step.seconds or together:
            together.append((number, step.steps))
    return spans


def read_reports(path: Path) -> Iterator[tuple[int, Metric]]:
    """Yield what ranks reported, each with its attempt, as a job's metrics.jsonl has it."""
    reader = GrowingFile(path)
    while lines := reader.read():
        for line in lines:
            if len(line) <= 4 * MAX_LINE_BYTES and (found := parse_report(line)) is not None:
                yield found
