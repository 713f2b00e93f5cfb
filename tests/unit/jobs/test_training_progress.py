"""How far a training is, and when the rest will be done: only where somebody says how long it is."""

from __future__ import annotations

import pytest
from dtagent.protocol.events import Metric

from dttui.jobs.plan_file import SeenLength
from dttui.jobs.training_progress import TrainingProgress, training_progress


def steps(*told: tuple[float, int], **more: float) -> list[Metric]:
    return [Metric(0, step, time=at, **more) for at, step in told]  # type: ignore[arg-type]  # names of metrics


def test_the_rest_takes_what_the_newest_reports_have_taken() -> None:
    metrics = steps((0, 10), (2, 20), (2, 30), (6, 40))
    assert training_progress(metrics[-1], metrics, SeenLength(steps=160)) == TrainingProgress(0.25, 24.0)


def test_what_the_script_reports_counts_before_what_the_job_says() -> None:
    metrics = steps((0, 10), (1, 20), total_steps=40)
    assert training_progress(metrics[-1], metrics, SeenLength(steps=1000)) == TrainingProgress(0.5, 2.0)


def test_the_time_until_it_began_anew_is_of_no_step() -> None:
    metrics = steps((0, 10), (1, 20), (500, 15), (502, 20), (504, 25))
    assert training_progress(metrics[-1], metrics, SeenLength(steps=50)) == TrainingProgress(0.5, 10.0)
    again = steps((0, 10), (1, 20), (500, 15))
    assert training_progress(again[-1], again, SeenLength(steps=30)) == TrainingProgress(0.5, None)


@pytest.mark.parametrize(
    ("epoch", "epochs", "share"),
    [(0.5, 2.0, 0.25), (45.0, 90.0, 0.5), (1.0, 3.0, None), (1.5, 1.0, None), (None, 90.0, None)],
    ids=["a part", "of many", "counted from nought or one", "longer than said", "not told"],
)
def test_epochs_tell_where_steps_do_not(epoch: float | None, epochs: float, share: float | None) -> None:
    newest = Metric(0, 7, epoch=epoch, time=1.0)
    found = training_progress(newest, [newest], SeenLength(epochs=epochs))
    assert (None if found is None else found.share) == share


def test_more_steps_than_were_said_tell_nothing() -> None:
    metrics = steps((0, 10), (1, 200))
    assert training_progress(metrics[-1], metrics, SeenLength(steps=100)) is None
    assert training_progress(metrics[-1], metrics, None) is None


def test_an_epoch_that_is_told_with_its_fraction_also_counts_at_its_end() -> None:
    metrics = [Metric(0, 5, epoch=0.5, time=0.0), Metric(0, 10, epoch=1.0, time=5.0)]
    assert training_progress(metrics[-1], metrics, SeenLength(epochs=2)) == TrainingProgress(0.5, 10.0)


def test_the_steps_of_an_epoch_tell_how_far_a_training_of_few_epochs_is() -> None:
    metrics = steps((0, 10), (10, 20), epoch_steps=20, epoch=1)
    assert training_progress(metrics[-1], metrics, SeenLength(epochs=2)) == TrainingProgress(0.5, 20.0)
    assert training_progress(metrics[-1], metrics, None) is None
