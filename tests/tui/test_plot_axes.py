"""The labels on the axes of the plots: round, each another one, and where they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dttui.tui.widgets.metric_plots import axis_ticks

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
