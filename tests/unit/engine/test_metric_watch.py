"""What is told of reports: NaN once, spikes that are spikes, and neither again for a while."""

from __future__ import annotations

import json
import math
import random

import pytest
from dtagent.protocol.events import Event, EventKind, Metric

from dttui.engine.alerts import metric_watch
from dttui.engine.alerts.metric_watch import MIN_REPORTS, QUIET_REPORTS, Anomaly, MetricWatch, anomaly_message
from dttui.jobs import JobDirectory
from dttui.jobs.decoding import taken
from dttui.jobs.event_log import EventLog


def reports(losses: list[float], rank: int = 0, first_step: int = 0) -> list[Metric]:
    return [
        Metric(rank, first_step + index, loss if math.isfinite(loss) else None)
        if math.isfinite(loss)
        else Metric(rank, first_step + index, not_finite=["loss"])
        for index, loss in enumerate(losses)
    ]


def feed(watch: MetricWatch, metrics: list[Metric]) -> list[Anomaly]:
    return [alert for metric in metrics for alert in watch.feed(metric)]


def falling(count: int, seed: int = 0) -> list[float]:
    """Losses as a language model has them: a steep fall, then a slow one, with noise."""
    noise = random.Random(seed)
    return [2.0 + 9.0 * math.exp(-index / 40) + noise.gauss(0, 0.05) for index in range(count)]


def test_a_loss_that_turns_to_nan_is_told_once_with_its_step() -> None:
    alerts = feed(MetricWatch(), reports([2.0, 1.9, math.nan, math.nan, math.inf]))
    assert [(alert.code, alert.step, alert.usual) for alert in alerts] == [("loss-not-finite", 2, 1.95)]


def test_a_loss_that_stays_nan_is_never_told_again() -> None:
    assert len(feed(MetricWatch(), reports([2.0] + [math.nan] * 10 * QUIET_REPORTS))) == 1


def test_a_loss_that_recovers_and_breaks_again_much_later_is_told_again() -> None:
    losses = [2.0, math.nan, *[2.0] * QUIET_REPORTS, math.nan]
    assert [alert.step for alert in feed(MetricWatch(), reports(losses))] == [1, QUIET_REPORTS + 2]


def test_all_ranks_that_break_together_are_one_alert() -> None:
    watch = MetricWatch()
    rounds = [[Metric(rank, step, 2.0) for rank in range(8)] for step in range(5)]
    rounds.append([Metric(rank, 5, not_finite=["loss"]) for rank in range(8)])
    alerts = [alert for metrics in rounds for alert in feed(watch, metrics)]
    assert [(alert.rank, alert.step) for alert in alerts] == [(0, 5)]


def test_a_spike_is_told_with_what_was_usual() -> None:
    losses = [*falling(200), 6.0, *falling(20)]
    (alert,) = feed(MetricWatch(), reports(losses))
    assert (alert.code, alert.step, alert.value) == ("loss-spike", 200, 6.0)
    assert alert.usual == pytest.approx(2.1, abs=0.2)


def test_a_spike_is_told_with_the_losses_just_before_it_and_not_those_of_long_ago() -> None:
    losses = [3.0 - 0.03 * step for step in range(64)]
    (alert,) = feed(MetricWatch(), reports([*losses, 40.0]))
    assert alert.usual == pytest.approx(losses[-3])


@pytest.mark.parametrize("seed", range(20))
def test_an_ordinary_training_raises_no_alert(seed: int) -> None:
    noise = random.Random(seed)
    metrics = [
        Metric(0, step, loss, gradient_norm=math.exp(noise.gauss(0, 0.4)))
        for step, loss in enumerate(falling(2000, seed))
    ]
    assert feed(MetricWatch(), metrics) == []


def test_the_wild_first_steps_and_a_constant_loss_raise_no_alert() -> None:
    assert feed(MetricWatch(), reports([1.0, 50.0, 2.0, 80.0] * (MIN_REPORTS // 4))) == []
    assert feed(MetricWatch(), reports([0.5] * 100 + [0.51] + [0.5] * 100)) == []


def test_a_training_that_diverges_is_told_now_and_then_and_not_at_every_step() -> None:
    losses = falling(100) + [3.0 * 1.2**index for index in range(100)]
    alerts = feed(MetricWatch(), reports(losses))
    assert 1 <= len(alerts) <= 3
    assert {alert.code for alert in alerts} == {"loss-spike"}


def test_gradient_norms_are_watched_too() -> None:
    metrics = [Metric(0, step, gradient_norm=1.0 + step % 7 / 20) for step in range(100)]
    metrics += [Metric(0, 100, gradient_norm=40.0), Metric(0, 101, not_finite=["gradient_norm"])]
    assert [alert.code for alert in feed(MetricWatch(), metrics)] == ["gradient-norm-spike", "gradient-norm-not-finite"]


def test_what_has_no_step_and_what_is_not_reported_does_no_harm() -> None:
    assert feed(MetricWatch(), [Metric(0), Metric(0, epoch=0.5, extra={"eval_loss": 2.0})]) == []
    (alert,) = feed(MetricWatch(), [Metric(3, not_finite=["loss"])])
    assert anomaly_message("gpu1", alert) == "the loss is not a number any more: rank 3 on gpu1"


def test_ranks_without_end_are_not_all_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_watch, "MOST_SERIES", 4)
    told = []
    for fails in range(100):
        watch = MetricWatch()
        feed(watch, [Metric(rank, 0, loss=2.0, gradient_norm=1.0) for rank in range(100)])
        told += [alert.rank for alert in feed(watch, reports([math.nan], rank=fails))]
    assert told == [0, 1]


def test_an_alert_is_an_event_that_reads_back_from_disk(tmp_path: object) -> None:
    alert = Anomaly("loss", 2, 1240, 9.5, 2.125)
    message = anomaly_message("gpu1", alert)
    assert message == "the loss jumped to 9.5 from about 2.125: rank 2 on gpu1, step 1,240"
    directory = JobDirectory(tmp_path)  # type: ignore[arg-type]  # pytest's Path
    event = EventLog(directory.events).add(EventKind.METRIC_ALERT, message, rank=2, node="gpu1", data=alert.data)
    assert isinstance(event, Event)
    assert taken(Event, json.loads(directory.events.read_text())) == event
    assert event.data == {"code": "loss-spike", "metric": "loss", "step": 1240, "value": 9.5, "usual": 2.125}
