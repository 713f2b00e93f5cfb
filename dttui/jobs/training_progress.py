"""How much of a training is done and when the rest will be, by what its ranks report. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from dtagent.protocol.events import Metric

from dttui.i18n import _
from dttui.words import duration

if TYPE_CHECKING:
    from dttui.jobs.plan_file import SeenLength
    from dttui.planning.training_length import TrainingLength

PACE_REPORTS = 50
"""Newest reports by which the rest is told."""
LEAST_EPOCHS = 20
"""Of which a whole number tells how far a training is: trainers count from nought or from one."""


@dataclass(frozen=True)
class TrainingProgress:
    """How far a training is."""

    share: float
    """Of its steps or epochs, from 0 to 1."""
    remaining_s: float | None
    """Seconds that the rest takes at the newest pace; `None` where too few reports tell it."""

    def words(self) -> list[str]:
        """Return the share that is done and how long the rest takes, as far as is known: `62%`, `12m 5s left`."""
        left = self.remaining_s
        return [f"{self.share:.0%}", *([] if left is None else [_("{span} left").format(span=duration(left))])]


def training_progress(
    newest: Metric, metrics: Sequence[Metric], length: SeenLength | TrainingLength | None
) -> TrainingProgress | None:
    """Return how far a training is; `None` where nobody says how long it is, or it is longer than that.

    Args:
        newest: the last report, with what those before it have told.
        metrics: reports of one rank, the newest last.
        length: what the job gives its script as the end; what the script reports itself counts before that.
    """
    epochs = length.epochs if length is not None else None
    steps = newest.value("total_steps") or (length.steps if length is not None else None)
    if not steps and epochs:
        steps = epochs * (newest.value("epoch_steps") or 0)
    if steps and newest.step is not None:
        found = [(metric.time, float(metric.step)) for metric in metrics if metric.step is not None]
        return _of(float(newest.step), float(steps), found)
    told = [(metric.time, metric.epoch) for metric in metrics if metric.epoch is not None]
    # At the end of an epoch one that is told with its fraction is whole, too.
    is_exact = any(epoch != int(epoch) for _time, epoch in (*told, (None, newest.epoch or 0.0)))
    if not epochs or newest.epoch is None or (not is_exact and epochs < LEAST_EPOCHS):
        return None
    return _of(newest.epoch, epochs, told)


def _of(done: float, total: float, told: Sequence[tuple[float | None, float]]) -> TrainingProgress | None:
    if not 0 <= done <= total:
        return None
    recent = [(at, position) for at, position in told[-PACE_REPORTS:] if at is not None]
    # Where it began anew from a checkpoint the time in between is of no step.
    anew = [index for index, pair in enumerate(pairwise(recent), 1) if not _goes_on(*pair)]
    recent = recent[anew[-1] if anew else 0 :]
    (began, first), (ended, last) = (recent[0], recent[-1]) if recent else ((0.0, done), (0.0, done))
    if ended <= began:
        return TrainingProgress(done / total, None)
    return TrainingProgress(done / total, (total - done) * (ended - began) / (last - first))


def _goes_on(earlier: tuple[float, float], later: tuple[float, float]) -> bool:
    return later[0] >= earlier[0] and later[1] > earlier[1]
