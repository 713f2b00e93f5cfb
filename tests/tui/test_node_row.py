"""The row of a node on the run screen: what its ranks and its host read, in the width there is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from dttui.tui.symbols import StateWord
from dttui.tui.widgets.cells import Piece
from dttui.tui.widgets.node_row import NARROW, Grid, NodeRow, SlotCell, heading, height_of, lines_of

SLOTS = tuple(SlotCell(rank, 0.5, ("50%", "71G", "60°C", "390W"), "") for rank in range(8))
ROW = NodeRow(
    name="pytorch-dev-env",
    is_master=True,
    state=StateWord("●", "running", "state-running"),
    ranks="0–7",
    simulated=False,
    problem="",
    note="",
    labels=("util", "mem"),
    slots=SLOTS,
)
FIGURES = ("faults 45/s", "", "swap 1.4G", "lost 12.3k/s")


def text(line: list[Piece]) -> str:
    return "".join(text for text, _part in line)


def drawn(rows: tuple[NodeRow, ...], width: int) -> list[list[str]]:
    """Return the lines of each row; those of the heading first."""
    grid = Grid.for_rows(rows, width)
    found = [[text(line) for line in lines_of(row, grid)] for row in rows]
    assert [len(lines) for lines in found] == [height_of(row, grid) for row in rows]
    return [[text(line) for line in heading(grid)], *found]


@pytest.mark.parametrize("width", [80, 99, 100, 112, 120, 160, 200])
def test_what_a_host_reads_stands_behind_its_ranks_whole_or_not_at_all(width: int) -> None:
    row = replace(ROW, figures=FIGURES)
    other = replace(ROW, name="b", is_master=False, figures=("", "", "swap 12G", ""))
    for rows in ((row,), (row, other)):
        lines = [line for found in drawn(rows, width) for line in found]
        assert max(map(cell_len, lines)) <= width
        told = [figure for figure in FIGURES if figure and figure in lines[1]]
        assert told == [figure for figure in FIGURES if figure][: len(told)]
        assert not any(figure[:4] in lines[1] for figure in FIGURES[2:] if figure and figure not in told)
        assert told
        usual = drawn(tuple(replace(row, figures=()) for row in rows), width)
        assert len(lines) <= sum(map(len, usual)) + len(rows)
        assert sum(line.count("71G") for line in lines) == 8 * len(rows)


def test_cells_stay_below_one_another_whichever_hosts_read_something() -> None:
    row, other = replace(ROW, figures=FIGURES), replace(ROW, name="b", figures=())
    (titles,), (head, first, *_more), (_name, second, *_others) = drawn((row, other), 200)
    assert first.index("━━") == second.index("━━") == titles.index("util")
    assert "swap 1.4G" in head


def test_without_room_in_its_row_a_host_tells_nothing_more() -> None:
    row = replace(ROW, name="n" * 30, ranks="100000–100007", figures=FIGURES)
    assert drawn((row,), 78) == drawn((replace(row, figures=()),), 78)
    assert "faults 45/s" in drawn((row,), NARROW)[1][0]


def test_a_note_takes_the_place_of_what_the_host_reads() -> None:
    row = replace(ROW, note="has joined, and waits", figures=FIGURES)
    for width in (80, 200):
        lines = drawn((row,), width)[1]
        assert "has joined, and waits" in lines[0]
        assert "faults" not in lines[0]


def test_nothing_of_a_host_leaves_the_row_as_it_is() -> None:
    for width in (80, 120, 200):
        assert drawn((replace(ROW, figures=("", "")),), width) == drawn((ROW,), width)


def test_ranks_have_wider_bars_and_their_newest_loads_where_there_is_room() -> None:
    rows = (replace(ROW, slots=tuple(replace(slot, memory=0.75) for slot in SLOTS), figures=("CPU 97%",)),)
    tight, wide, tall = (Grid.for_rows(rows, *size) for size in ((80, 0), (200, 0), (120, 14)))
    assert (tight.trend, tight.memory_bar) == (9, 0)
    assert (wide.cells_a_line, wide.trend, wide.memory_bar) == (4, 15, 4), "in as many lines as before"
    assert (tall.cells_a_line, tall.trend) == (2, 24), "in more lines, where there are some"
    for grid in (tight, wide, tall):
        lines = [text(line) for line in lines_of(rows[0], grid, lambda slot: (0, 50, 100) * 20)]
        assert len(lines) == height_of(rows[0], grid)
        assert max(map(cell_len, lines)) <= grid.width
        assert f"50% {('▁▄█' * 20)[-grid.trend :]} " in lines[1]
    assert "━━━─  71G" in text(lines_of(rows[0], wide)[1])


def test_the_rank_that_others_wait_for_is_marked() -> None:
    row = replace(ROW, slots=tuple(replace(slot, is_late=slot.rank == 3) for slot in SLOTS))
    found = "".join(text(line) for line in lines_of(row, Grid.for_rows((row,), 120)))
    assert "3⚠━━" in found
    assert found.count("⚠") == 1
