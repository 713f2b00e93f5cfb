"""How fast training goes by what ranks report, beside what its plan has estimated of it."""

from __future__ import annotations

import pickle

import pytest
from dtagent.protocol.events import Metric

from dttui.engine.measurement import compare_with_estimate
from dttui.jobs import course as jobs_course
from dttui.jobs.course import Course, side_by_side
from dttui.jobs.figures import Figure, figures_of
from dttui.jobs.outcome import AttemptOutcome
from dttui.jobs.training_speed import MOST, TrainingSpeed
from dttui.planning.binding import bind
from dttui.planning.cost.estimate import GB
from tests.unit.planning.test_costing import NAMES, planned
from tests.unit.planning.test_large_plans import bindings_of


def paced(*reports: tuple[int, float], rank: int = 0) -> TrainingSpeed:
    speed = TrainingSpeed()
    for step, when in reports:
        speed.take(Metric(rank, step, time=when))
    return speed


def test_a_step_takes_what_most_of_them_took_whatever_the_first_one_and_a_checkpoint_took() -> None:
    when, reports = 100.0, []
    for step in range(0, 400, 10):
        when += 60.0 if step in (10, 200) else 5.0
        reports.append((step, when))
    assert paced(*reports).step_time_s == pytest.approx(0.5)


def test_reports_that_arrive_together_are_shared_out_among_their_steps() -> None:
    reports = [(step, 100.0 + step // 50 * 5.0) for step in range(0, 1000, 10)]
    assert paced(*reports).step_time_s == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize(
    "reports", [[], [(1, 5.0)], [(1, 5.0), (2, 6.0)], [(1, 5.0)] * 9, [(9 - n, 1.0) for n in range(9)]]
)
def test_of_too_few_reports_nothing_is_said(reports: list[tuple[int, float]]) -> None:
    assert paced(*reports).step_time_s is None


def test_steps_that_are_made_again_and_clocks_that_go_back_count_for_nothing() -> None:
    reports = [(step, 100.0 + step) for step in range(20)] + [(step, 1000.0 + step) for step in range(10, 30)]
    assert paced(*reports).step_time_s == pytest.approx(1.0)
    reports = [(step, (0.0 if step > 10 else 500.0) + step) for step in range(30)]
    assert paced(*reports).step_time_s == pytest.approx(1.0)


def test_the_lowest_rank_counts_and_what_is_kept_is_bounded() -> None:
    speed = TrainingSpeed()
    for step in range(20_000):
        speed.take(Metric(1, step, time=step * 9.0, tokens_per_s=5.0))
    for step in range(20_000):
        speed.take(Metric(0, step, time=step * 2.0, tokens_per_s=100.0 + step % 3))
        speed.take(Metric(1, step, time=step * 9.0, tokens_per_s=5.0))
    assert speed.step_time_s == pytest.approx(2.0)
    assert speed.of("tokens_per_s") == pytest.approx(101.0)
    assert speed.of("samples_per_s") is None
    assert len(pickle.dumps(speed)) < 32 * MOST


def test_an_attempt_has_what_was_estimated_beside_what_was_measured_and_nothing_where_nobody_could() -> None:
    made = planned(*NAMES)
    assert made.estimate is not None
    bound = bind(made, bindings_of(made))
    speed = paced(*((step, 100.0 + 0.5 * step) for step in range(100)))
    first = bound.plan.nodes[0]
    others = {first.slots + 3: 80_000}
    found = compare_with_estimate(bound, speed, {first.name: {0: 40_000, 1: 50_000, **others}, "stranger": {0: 70_000}})
    time, memory = made.estimate.step_time_s, made.estimate.memory_per_gpu_gb
    assert found["step_time_s"] == Figure(time.value, time.low, time.high, speed.step_time_s)
    assert speed.step_time_s == pytest.approx(0.5)
    assert found["memory_per_gpu_gb"] == Figure(memory.low, memory.low, memory.high, 50_000 * (1 << 20) / GB)
    assert found["tokens_per_s"] == Figure(made.estimate.tokens_per_s)
    assert compare_with_estimate(bound, TrainingSpeed(), {})["memory_per_gpu_gb"].measured is None
    assert "communication_percent" not in found  # Which is measured where the job asks for it.
    for rank, percent in ((0, 10.0), (1, 30.0), (0, 20.0)):
        speed.take(Metric(rank, communication_percent=percent, time=900.0))
    talking = compare_with_estimate(bound, speed, {})
    assert talking["communication_percent"] == Figure(100 * made.estimate.communication_share, measured=20.0)
    assert talking["step_time_s"] == found["step_time_s"]
    outcome = AttemptOutcome.model_validate({"state": "SUCCEEDED", "exit_code": 0, "figures": found})
    kept = outcome.model_dump(mode="json", exclude_defaults=True)
    assert figures_of({"attempt_outcome": kept}) == found


NO_FIGURES: tuple[object, ...] = (3, [], {"a": 3}, {"a": {"low": "x"}})


@pytest.mark.parametrize(
    "torn", [{}, {"attempt_outcome": 3}, *({"attempt_outcome": {"figures": x}} for x in NO_FIGURES)]
)
def test_figures_that_are_none_are_left_out(torn: dict[str, object]) -> None:
    assert figures_of(torn) == {}


def course(steps: range, seconds: float, *, attempt: int = 0, loss: float = 1.0) -> Course:
    made = Course()
    for number in steps:
        made.take(attempt, Metric(0, number, loss / (1 + number), time=number * seconds))
    return made


def test_equal_steps_stand_side_by_side_with_the_time_of_each_job() -> None:
    one, two = course(range(0, 1001), 0.5), course(range(0, 501, 5), 0.25, loss=2.0)
    rows = side_by_side(one, two, 20)
    assert len(rows) == 20
    assert [rows[0].step, rows[-1].step] == [0, 500]
    assert all(row.step % 5 == 0 and row.second.loss == pytest.approx(2 * (row.first.loss or 0)) for row in rows)
    assert all(row.first_step_s == pytest.approx(0.5) for row in rows[1:])
    assert all(row.second_step_s == pytest.approx(0.25) for row in rows[1:])
    assert side_by_side(one, course(range(2000, 2010), 1.0), 20) == []
    assert [row.step for row in side_by_side(one, course(range(7, 9), 1.0), 20)] == [7, 8]


def test_of_many_more_steps_than_are_kept_two_jobs_keep_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_course, "MOST_STEPS", most := 1 << 12)
    one, two = course(range(0, 10 * most, 2), 0.5), course(range(0, 1000, 2), 0.5)
    assert len(one.steps) <= most
    assert len(side_by_side(one, two, 20)) > 10


def test_a_step_that_another_attempt_makes_again_counts_once_and_the_time_between_them_does_not() -> None:
    made = course(range(0, 50), 1.0)
    for number in range(40, 60):
        made.take(1, Metric(0, number, 0.25, time=10_000.0 + number))
    rows = side_by_side(made, made, 100)
    assert [row.step for row in rows] == list(range(60))
    assert rows[45].first.loss == 0.25
    assert {round(row.first_step_s, 6) for row in rows if row.first_step_s is not None} == {1.0}
