"""What a line has room for: names of hosts that differ at the end, words of their numbers, labels of an axis."""

from __future__ import annotations

from itertools import pairwise

import pytest
from rich.cells import cell_len

from dttui.app import BenchRow
from dttui.tui.bench_lines import BenchSeries, heading_line, series_line
from dttui.tui.widgets.plot_axes import axis_ticks
from dttui.tui.widgets.regime_plot import rows_apart
from tests.tui.bench_files import bench_report


def series(*where: str) -> BenchSeries:
    rows: tuple[BenchRow, ...] = bench_report(["a", "b"]).rows[:1]
    return BenchSeries(where, "sendrecv", "ping-pong", rows, is_slow=False)


@pytest.mark.parametrize("width", [26, 30, 40])
def test_hosts_of_one_name_and_many_numbers_are_told_apart(width: int) -> None:
    names = [f"gpu-worker-{number:02}" for number in range(4)]
    told = [series_line(series(names[0], name), width).plain for name in names[1:]]
    assert len(set(told)) == 3
    assert all(cell_len(text) == width for text in told)
    assert all(name[-2:] in text for name, text in zip(names[1:], told, strict=True))


def test_names_of_wide_characters_fill_the_same_cells() -> None:
    told = series_line(series("训练服务器一号机房甲", "训练服务器一号机房乙"), 30).plain
    assert cell_len(told) == 30
    assert "甲" in told
    assert "乙" in told


def test_a_heading_names_the_numbers_under_it() -> None:
    told = heading_line("between hosts", 30).plain
    assert told.startswith("between hosts ")
    assert told.endswith(" busbw")
    assert cell_len(told) == 30


@pytest.mark.parametrize("rows", range(1, 12))
def test_labels_of_an_axis_lie_in_rows_of_their_own_at_even_distances(rows: int) -> None:
    highest = 2.4e8
    shown = rows_apart(axis_ticks(0.0, highest, unit="B/s"), highest, rows)
    places = [place for place, _label in shown]
    assert places[0] == 0.0
    assert len({round(place / highest * (rows - 1)) for place in places}) == len(places)
    assert len({round(later - earlier) for earlier, later in pairwise(places)}) <= 1
