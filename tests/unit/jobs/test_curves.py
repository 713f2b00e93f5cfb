"""The curves of a job: nothing is drawn at a place that is not its own, whether steps are known or not."""

from __future__ import annotations

import math
from itertools import pairwise

from dtagent.protocol.events import Metric
from hypothesis import given
from hypothesis import strategies as st

from dttui.jobs.curves import MOST_OWN, SMOOTHING, Axis, ChosenPlots, Curve, curves, smoothed, speed_of, spread


def by_plot(*metrics: Metric) -> dict[str | None, Curve]:
    return {curve.declared.plot: curve for curve in curves(metrics)}


def test_points_lie_at_their_steps() -> None:
    found = by_plot(*(Metric(0, step, loss=3.0 - step / 10, epoch=0.1, tokens_per_s=100.0) for step in (1, 2, 9)))
    assert list(found) == ["loss", "speed"]
    assert {curve.axis for curve in found.values()} == {Axis.STEP}
    assert (found["loss"].name, found["loss"].points) == ("loss", ((1, 2.9), (2, 2.8), (9, 2.1)))
    assert (found["speed"].name, found["speed"].points) == ("tokens_per_s", ((1, 100.0), (2, 100.0), (9, 100.0)))


def test_without_steps_points_lie_at_their_epochs() -> None:
    (found,) = curves([Metric(0, loss=2.0, epoch=0.3), Metric(0, loss=1.5, epoch=0.6), Metric(0, epoch=1.0)])
    assert (found.axis, found.points) == (Axis.EPOCH, ((0.3, 2.0), (0.6, 1.5)))


def test_without_steps_and_epochs_points_lie_in_their_order() -> None:
    found, own = curves([Metric(0, loss=2.0), Metric(0, extra={"mfu": 1.0}), Metric(0, loss=1.5)])
    assert (found.name, found.axis, found.points) == ("loss", Axis.REPORT, ((1, 2.0), (3, 1.5)))
    assert (own.name, own.plot, own.points) == ("mfu", "mfu", ((2, 1.0),))


def test_a_few_points_without_a_step_are_left_out_and_not_put_at_step_nought() -> None:
    (found,) = curves([Metric(0, loss=9.0), *(Metric(0, step, loss=2.0) for step in (5, 10, 15))])
    assert (found.axis, found.points) == (Axis.STEP, ((5, 2.0), (10, 2.0), (15, 2.0)))


def test_of_metrics_that_share_a_plot_the_first_that_is_told_is_drawn() -> None:
    # Kept among the unknown by the version before, to which steps a second were none of the known metrics.
    bars = [Metric(0, step, loss=1.0, extra={"steps_per_s": 3.0}) for step in (1, 2)]
    found = by_plot(*bars)["speed"]
    assert (found.name, found.points) == ("steps_per_s", ((1, 3.0), (2, 3.0)))
    now = Metric(0, 3, steps_per_s=4.0)
    assert by_plot(*bars, now)["speed"].points == ((1, 3.0), (2, 3.0), (3, 4.0))
    both = Metric(0, 4, samples_per_s=80.0, extra={"steps_per_s": 3.0})
    assert by_plot(*bars, now, both)["speed"].points == ((4, 80.0),)
    assert speed_of(both) == ("samples_per_s", 80.0)
    assert speed_of(bars[0]) == ("steps_per_s", 3.0)
    assert speed_of(Metric(0, 3, loss=1.0)) is None


def test_without_reports_there_is_nothing() -> None:
    assert curves([]) == ()
    assert curves([Metric(0, 1, epoch=0.1)]) == ()


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=200, unique=True).map(sorted), st.integers(1, 100))
def test_points_that_are_kept_are_the_first_the_last_and_lie_evenly(positions: list[int], most: int) -> None:
    kept = spread(positions, most)
    assert kept == sorted(set(kept))
    assert (kept[0], kept[-1]) == (0, len(positions) - 1)
    assert len(kept) <= most + 1
    width = (positions[-1] - positions[0]) / max(1, most - 1)
    for earlier, later in pairwise(kept):
        between = later - earlier > 1
        assert not between or positions[later - 1] - positions[earlier] < width


def test_points_without_an_order_of_their_own_may_all_be_alike() -> None:
    assert spread([], 5) == []
    assert spread([7, 7, 7], 2) == [0, 2]
    assert spread([90, 100, 0, 10, 20], 4) == [0, 1, 3, 4]


def test_what_a_script_reports_under_names_of_its_own_is_drawn_up_to_a_limit() -> None:
    numbers = {f"own_{index}": float(index) for index in range(MOST_OWN + 5)}
    found = [
        curve.plot for curve in curves([Metric(0, 1, loss=2.0, learning_rate=0.1, gradient_norm=1.0, extra=numbers)])
    ]
    assert found[:4] == ["loss", "learning-rate", "gradient-norm", "own_0"]
    assert len(found) == 3 + MOST_OWN


def test_a_job_chooses_which_plots_come_first_and_a_dashboard_which_there_are() -> None:
    extra = {"accuracy": 0.5, "mfu": 0.4}
    drawn = curves([Metric(0, 1, loss=2.0, tokens_per_s=100.0, learning_rate=0.1, extra=extra)])

    def named(*names: str, is_all: bool = False) -> list[str]:
        return [curve.plot for curve in ChosenPlots(names, is_all=is_all).arranged(drawn)]

    assert named() == ["loss", "speed", "learning-rate", "accuracy", "mfu"]
    assert named("mfu", "throughput", "lr") == ["mfu", "speed", "learning-rate", "loss", "accuracy"]
    assert named("accuracy", "loss", is_all=True) == ["accuracy", "loss"]
    assert named("nobody_reports_this", is_all=True) == named(), "a plot that is not there hides no others"


def test_a_smoothed_curve_is_the_debiased_average_by_its_formula() -> None:
    flat = tuple((float(step), 3.0) for step in range(100))
    assert all(abs(value - 3.0) < 1e-9 for _place, value in smoothed(flat)), "its beginning is not drawn to nought"
    noisy = tuple((float(step), 3.0 + (-1) ** step) for step in range(101))
    calm = smoothed(noisy)
    assert max(abs(value - 3.0) for _place, value in calm[20:]) < 0.4
    decay = math.exp(-1 / (SMOOTHING * 100))
    weights = [decay**age for age in range(11)]
    by_hand = sum(weight * noisy[10 - age][1] for age, weight in enumerate(weights)) / sum(weights)
    assert abs(calm[10][1] - by_hand) < 1e-9
    assert smoothed(()) == ()
    assert smoothed(((1.0, 2.0),)) == ((1.0, 2.0),)
    again = smoothed(((0.0, 9.0), (100.0, 9.0), (50.0, 1.0), (100.0, 1.0)))
    assert [value for _place, value in again] == [9.0, 9.0, 1.0, 1.0], "what was before a checkpoint does not count"
