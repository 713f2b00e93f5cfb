"""The labels on the axes of the plots: round, each another one, and where they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dttui.tui.widgets.plot_axes import Begin, axis_ticks, position_axis, value_axis

VALUES = st.floats(-1e12, 1e12, allow_nan=False)
WHOLE = st.integers(0, 10**9)


@pytest.mark.parametrize(
    ("low", "high", "is_whole", "labels"),
    [
        (0, 2, True, ["0", "1", "2"]),
        (3, 3, True, ["3"]),
        (1, 20, True, ["5", "10", "15", "20"]),
        (0, 1240, True, ["0", "500", "1,000"]),
        (2.19, 4.92, False, ["2.5", "3.0", "3.5", "4.0", "4.5"]),
        (81_220, 81_260, False, ["81.22k", "81.23k", "81.24k", "81.25k", "81.26k"]),
        (1e-8, 5e-8, False, ["1e-08", "2e-08", "3e-08", "4e-08", "5e-08"]),
        (-3, 4, False, ["-2", "0", "2", "4"]),
        (2.113, 2.113, False, ["2.113"]),
        (0, 0, False, ["0"]),
    ],
)
def test_an_axis_has_round_labels(low: float, high: float, is_whole: bool, labels: list[str]) -> None:
    assert [label for _place, label in axis_ticks(low, high, is_whole=is_whole)] == labels


@given(st.tuples(WHOLE, WHOLE).map(sorted))
def test_labels_of_whole_numbers_stand_where_they_say_and_never_repeat(ends: list[int]) -> None:
    ticks = axis_ticks(*ends, is_whole=True)
    assert 1 <= len(ticks) <= 7
    assert all(place == round(place) for place, _label in ticks)
    assert len({label for _place, label in ticks}) == len(ticks)


@given(st.tuples(VALUES, VALUES).map(sorted))
def test_labels_never_repeat_and_lie_on_the_axis(ends: list[float]) -> None:
    low, high = ends
    ticks = axis_ticks(low, high)
    slack = (high - low) * 1e-6
    assert 1 <= len(ticks) <= 7
    assert all(low - slack <= place <= high + slack for place, _label in ticks)
    assert len({label for _place, label in ticks}) == len(ticks)


def test_a_change_of_two_percent_takes_no_more_than_a_tenth_of_the_height() -> None:
    for low, high, begin in ((2.0, 2.04, Begin.ANYWHERE), (80e3, 81.6e3, Begin.ZERO), (-5.0, -4.9, Begin.ANYWHERE)):
        axis = value_axis(low, high, 20, begin)
        first, last = axis.share(low), axis.share(high)
        assert first is not None
        assert last is not None
        assert 0 < last - first <= 0.1
        assert axis.low <= low < high <= axis.high


def test_a_share_goes_to_a_hundred_a_rate_from_nought_and_a_small_least_value_too() -> None:
    assert value_axis(93, 97, 20, Begin.SHARE)[:2] == (0, 100)
    assert value_axis(0, 340, 20, Begin.SHARE).high >= 340
    assert value_axis(80e3, 81e3, 20, Begin.ZERO).low == 0
    assert value_axis(0.5, 5.0, 20, Begin.ANYWHERE).low == 0
    assert value_axis(3.0, 5.0, 20, Begin.ANYWHERE).low == 3
    assert value_axis(-1.0, 5.0, 20, Begin.ZERO).low <= -1
    assert value_axis(0.0, 0.0, 20, Begin.ZERO)[:2] == (0, 1)


@given(st.tuples(VALUES, VALUES).map(sorted), st.integers(1, 60), st.sampled_from(Begin))
def test_an_axis_holds_all_values_between_its_first_and_last_label(ends: list[float], rows: int, begin: Begin) -> None:
    low, high = ends
    axis = value_axis(low, high, rows, begin)
    slack = (axis.high - axis.low) * 1e-6
    assert axis.low - slack <= low <= high <= axis.high + slack
    assert len({label for _place, label in axis.ticks}) == len(axis.ticks) >= 2


def test_a_logarithmic_axis_has_round_numbers_and_no_place_for_nought() -> None:
    axis = value_axis(0.013, 45.0, 20, Begin.ZERO, is_log=True)
    assert axis.is_log
    assert [label for _place, label in axis.ticks] == ["0.01", "0.1", "1", "10", "100"]
    assert axis.share(0.0) is None
    assert axis.share(1.0) == pytest.approx(0.5)
    assert not value_axis(-1.0, 2.0, 20, Begin.ANYWHERE, is_log=True).is_log, "there is none for less than nought"
    assert [label for _place, label in value_axis(2.0, 3.0, 9, Begin.ANYWHERE, is_log=True).ticks] == [
        "2.0",
        "2.5",
        "3.0",
    ]


def test_fewer_columns_have_fewer_labels() -> None:
    assert len(position_axis(0, 1200, 80, is_whole=True).ticks) == 6 + 1
    assert len(position_axis(0, 1200, 20, is_whole=True).ticks) <= 3
