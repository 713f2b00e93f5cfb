"""A plot as lines of text, and the places of several in a grid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from dttui.tui.widgets.braille import Canvas
from dttui.tui.widgets.cells import sparkline
from dttui.tui.widgets.metric_plots import LEAST_WIDTH, places
from dttui.tui.widgets.plot import CURVE, GHOST, LEAST_ROWS, RAW, Plot, plot_lines
from dttui.tui.widgets.plot_area import Curves, Stroke, curve_lines
from dttui.tui.widgets.plot_axes import Begin

FALLING = [(float(step), 5.0 - step / 50) for step in range(0, 201, 10)]
LOSS = Plot("loss", "loss", "loss by step", FALLING, is_whole=True, newest="1.0")


def drawn(plot: Plot, width: int = 60, height: int = 16, *, is_log: bool = False, legend: str = "") -> list[str]:
    """Return the lines as a person sees them."""
    lines = plot_lines(plot, width, height, is_log=is_log, is_chosen=False, legend=legend)
    return ["".join(text for text, _part in line) for line in lines]


def parts(plot: Plot) -> set[str]:
    """Return what the pieces of a plot with dots are."""
    lines = plot_lines(plot, 60, 16, is_log=False, is_chosen=False, legend="")
    return {str(part) for line in lines for text, part in line if any(0x2800 < ord(char) < 0x2900 for char in text)}


@given(st.integers(20, 200), st.integers(1, 60), st.booleans())
def test_a_plot_fills_exactly_its_room(width: int, height: int, is_log: bool) -> None:
    lines = drawn(LOSS, width, height, is_log=is_log)
    assert len(lines) == height
    assert {cell_len(line) for line in lines} == {width}


def test_a_plot_tells_its_name_its_newest_value_and_round_numbers_on_both_axes() -> None:
    title, *rows, axis, labels = drawn(LOSS)
    assert title.startswith("─ loss by step")
    assert title.rstrip().endswith("1.0")
    assert [row.split("┤")[0].strip() for row in rows if "┤" in row] == ["6", "4", "2", "0"]
    assert labels.split() == ["0", "50", "100", "150", "200"]
    assert axis.count("┬") == 5
    assert rows[2].startswith(" │⠉⠒"), "it begins at 5, half-way between two labels"


def test_a_run_before_is_drawn_dashed_behind_and_named_where_there_is_room() -> None:
    ghost = [(place, value + 0.5) for place, value in FALLING] + [(1000.0, 0.1)]
    plot = LOSS._replace(ghost=ghost, smooth=FALLING)
    assert parts(plot) == {GHOST, f"{RAW}-loss", f"{CURVE}-loss"} - {f"{RAW}-loss"}, "both curves are in one place"
    told = "the run before: gpt-small-1130"
    assert f"  ┄ {told} ─" in drawn(plot, legend=told)[0]
    assert "  ┄ the run before: …" in drawn(plot, width=44, legend=told)[0]
    assert "┄" not in drawn(plot, width=34, legend=told)[0]
    assert drawn(plot)[-1].split()[-1] in ("200", "250"), "what lies far ahead does not make this run small"


def test_a_run_before_that_went_wild_does_not_make_this_one_flat() -> None:
    plot = LOSS._replace(ghost=[(place, 1e9) for place, _value in FALLING])
    assert "┤" in "".join(drawn(plot))
    assert not any("G" in row or "M" in row for row in drawn(plot))


def test_the_pen_is_lifted_where_a_job_has_gone_back() -> None:
    plot = LOSS._replace(points=[(0.0, 0.0), (100.0, 10.0), (50.0, 10.0), (100.0, 10.0)])
    whole = LOSS._replace(points=[(0.0, 0.0), (100.0, 10.0)])
    inner = [row[20:30] for row in drawn(plot)[6:12]]
    assert inner == [row[20:30] for row in drawn(whole)[6:12]], "no line leads back"


def test_values_without_a_place_on_a_logarithmic_axis_are_left_out() -> None:
    plot = LOSS._replace(points=[(0.0, 0.0), (1.0, 10.0), (2.0, 1000.0)])
    assert " · log" in drawn(plot, is_log=True)[0]
    only = LOSS._replace(points=[(0.0, 0.0), (1.0, -1.0)])
    assert " · log" not in drawn(only, is_log=True)[0], "there is nothing to draw on such an axis"


def test_lines_are_drawn_in_dots_and_later_ones_cover_earlier_ones() -> None:
    canvas = Canvas(2, 1)
    canvas.draw([(0, 0), (3, 3)], 1)
    assert canvas.runs(0) == [("⠑⢄", 1)]
    canvas.draw([(2, 0), (3, 0)], 2)
    assert canvas.runs(0) == [("⠑", 1), ("⢍", 2)]
    point = Canvas(3, 2)
    point.draw([(2, 3)], 1)
    assert sum(text.strip() != "" for row in range(2) for text, _pen in point.runs(row)) == 2, "one dot is too small"


def test_a_sparkline_shows_the_newest_and_gaps() -> None:
    assert sparkline((0, 50, 100, None, 100), 5) == "▁▄█ █"
    assert sparkline((0, 50, 100), 2) == "▄█"
    assert sparkline((100,), 4) == "   █"


@given(st.integers(1, 24), st.integers(10, 220), st.integers(4, 80))
def test_plots_tile_the_room_and_all_show_if_there_is_enough(count: int, width: int, height: int) -> None:
    found = places(count, width, height)
    assert len(found) == count
    cells = [(x, place.top) for place in found for x in range(place.left, place.left + place.width)]
    assert len(cells) == len(set(cells)), "none lies on another"
    assert all(place.left + place.width <= width for place in found)
    bottom = max(place.top + place.height for place in found)
    if bottom <= height and height >= LEAST_ROWS:
        assert bottom == height or count == 1
        assert min(place.height for place in found) >= LEAST_ROWS
    assert min(place.width for place in found) >= min(width, LEAST_WIDTH) - 1


@pytest.mark.parametrize(
    ("count", "size", "rows"),
    [
        (3, (120, 25), [1, 2]),
        (6, (200, 42), [3, 3]),
        (7, (200, 42), [2, 2, 3]),
        (4, (80, 10), [2, 2]),
        (1, (80, 10), [1]),
    ],
)
def test_a_grid_has_a_shape_that_reads_well(count: int, size: tuple[int, int], rows: list[int]) -> None:
    tops = [place.top for place in places(count, *size)]
    assert [tops.count(top) for top in sorted(set(tops))] == rows


def shown(curves: Curves, width: int = 60, height: int = 16) -> list[str]:
    """Return the lines of curves that share their axes."""
    return ["".join(text for text, _part in line) for line in curve_lines(curves, width, height)]


def test_curves_that_share_their_axes_end_at_their_letters_none_of_which_lies_on_another() -> None:
    lower = [(place, value - 0.2) for place, value in FALLING]
    curves = Curves([Stroke("plot-loss", FALLING, letter="A"), Stroke("master", lower, letter="B")], Begin.ANYWHERE)
    lines = shown(curves)
    text = "\n".join(lines)
    assert text.count("A") == text.count("B") == 1
    row = next(line for line in lines if "A" in line)
    assert row.rstrip().endswith("A"), "its curve ends there"
    parts = {part for line in curve_lines(curves, 60, 16) for text, part in line if {*text} & {*"AB"}}
    assert parts == {"plot-loss", "master"}


def test_letters_of_eight_curves_in_one_place_are_all_seen() -> None:
    text = "".join(shown(Curves([Stroke("p", FALLING, letter=letter) for letter in "ABCDEFGH"], Begin.ANYWHERE)))
    assert all(text.count(letter) == 1 for letter in "ABCDEFGH")


@pytest.mark.parametrize(("width", "labels"), [(60, ["0B", "2B", "4B", "6B"]), (24, ["0B", "4B"]), (12, ["0B"])])
def test_labels_below_are_as_many_as_have_room_at_even_distances(width: int, labels: list[str]) -> None:
    ticks = tuple((float(number), f"{number}B".rjust(7)) for number in range(8))
    curves = Curves([Stroke("p", [(0.0, 0.0), (7.0, 9.0)])], Begin.ZERO, ticks=ticks, borders=[3.0])
    assert shown(curves, width)[-1].split() == labels


def test_a_border_is_a_line_down_from_the_top_to_the_axis() -> None:
    curves = Curves([Stroke("p", [(0.0, 9.0), (4.0, 9.0)])], Begin.ZERO, borders=[2.0])
    rows = shown(curves, 21, 12)[:-2]
    found = [[column for column, char in enumerate(row) if 0x2800 < ord(char) < 0x2900] for row in rows]
    assert len(set(map(tuple, found[3:]))) == 1
    assert len(found[-1]) == 1


@given(st.integers(1, 200), st.integers(0, 60))
def test_curves_that_share_their_axes_fill_exactly_their_room(width: int, height: int) -> None:
    lines = shown(Curves([Stroke("p", FALLING, letter="A")], Begin.ZERO, unit="B/s"), width, height)
    assert len(lines) <= height
    assert {cell_len(line) for line in lines} <= {width}
    assert shown(Curves([Stroke("p", [(0.0, float("nan"))], letter="A")], Begin.ZERO)) == []


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.tuples(st.integers(0, 10**6), NUMBERS), min_size=1, max_size=8), st.booleans())
def test_no_number_that_a_script_reports_ends_a_drawing(points: list[tuple[int, float]], is_log: bool) -> None:
    plot = LOSS._replace(points=[(float(place), value) for place, value in points], newest="")
    assert {cell_len(line) for line in drawn(plot, is_log=is_log)} == {60}


@pytest.mark.parametrize("value", [5e-324, 1e-310, 1e308, 1.7e308])
@pytest.mark.parametrize("is_log", [False, True])
def test_the_least_and_greatest_numbers_are_drawn_or_left_out(value: float, is_log: bool) -> None:
    for points in (
        [(0.0, value)],
        [(0.0, 0.0), (1.0, value)],
        [(0.0, 1.0), (1.0, value)],
        [(0.0, -value), (1.0, value)],
    ):
        assert len(drawn(LOSS._replace(points=points), is_log=is_log)) == 16
