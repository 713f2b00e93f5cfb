"""What a line has room for: names of hosts that differ at the end, words of their numbers, stretches of a curve."""

from __future__ import annotations

from itertools import pairwise

import pytest
from rich.cells import cell_len

from dttui.app import BenchRow
from dttui.tui.bench_lines import BenchSeries, bandwidth_curves, heading_line, series_line, series_of
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


def test_a_curve_of_bandwidth_has_a_stretch_for_each_regime_each_from_the_end_of_the_one_before() -> None:
    rows = next(found for found in series_of(bench_report(["a", "b"])) if len(found.where) == 2).rows
    curves = bandwidth_curves(rows)
    assert [stroke.part for stroke in curves.strokes] == ["plot-other", "plot-loss", "plot-speed"]
    for before, after in pairwise(curves.strokes):
        assert before.points[-1] == after.points[0]
    assert curves.borders == [stroke.points[0][0] for stroke in curves.strokes[1:]]
    assert len(curves.ticks) == len(rows)
