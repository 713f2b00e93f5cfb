"""The rows of jobs: what terms take, how columns sort, and which of them a width has room for."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from rich.cells import cell_len

from dttui.tui.job_rows import SORTS, TERMS, arranged_jobs
from dttui.tui.symbols import StateWord
from dttui.tui.widgets.job_row import (
    JobColumn,
    JobRow,
    column_at,
    heading,
    layout,
    natural_widths,
    row_pieces,
)

NOW = time.time()
FAILED = JobRow(
    key="gpt-1121-140000-aaaa", name="gpt", state=StateWord("✗", "失败", "state-failed"), framework="pytorch-fsdp",
    nodes=2, gpus=16, simulated=False, begun_at=NOW - 2 * 86400, took_s=5400.0, best_loss=1.75, last_step=20_000,
    why="ValueError: batch 118 has no samples", search="gpt failed gpu1 valueerror", states=("failed", "失败"),
    hosts=("gpu1", "gpu2"), cause="script-error", has_failed=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        ("state:failed framework:fsdp loss<2 since:7d node:gpu1", True),
        ("state:失败", True),
        ("state:running", False),
        ("!state:running", True),
        ("since:1d", False),
        ("before:1d", True),
        ("took>1h took<=90m", True),
        ("took>2d", False),
        ("step>=20k", True),
        ("step>1.5m", False),
        ("node:gpu9", False),
        ("gpus=16 nodes:2 cause:script", True),
        ("valueerror", True),
        ("since:", True),
    ],
)
def test_a_job_is_taken_where_all_terms_hold(text: str, takes: bool) -> None:
    assert TERMS.parse(text).takes(FAILED) is takes
    assert TERMS.parse(text).problem == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [("since:soon", "7d, 2h, 13:05"), ("los<2", 'did you mean "loss"?'), ("took>long", "compared with a number")],
)
def test_a_term_that_says_nothing_is_told_and_hides_nothing(text: str, problem: str) -> None:
    found = TERMS.parse(text)
    assert problem in found.problem
    assert found.takes(FAILED)


def test_what_is_not_known_is_neither_more_nor_less() -> None:
    row = replace(FAILED, best_loss=None, took_s=None, begun_at=None)
    assert not any(TERMS.parse(text).takes(row) for text in ("loss<2", "loss>=2", "took>1s", "since:7d", "before:1d"))


@pytest.mark.parametrize("column", list(SORTS))
def test_either_way_what_is_not_known_comes_last(column: JobColumn) -> None:
    other = replace(
        FAILED, key="b", name="b", state=StateWord("●", "running", "x"), framework="z", gpus=1, begun_at=NOW,
        took_s=1.0, best_loss=0.1, last_step=5, why="a",
    )  # fmt: skip
    unknown = replace(
        FAILED, key="c", name="c", state=StateWord("✓", "x", "x"), framework="", nodes=0, begun_at=None, took_s=None,
        best_loss=None, last_step=None, why="",
    )  # fmt: skip
    rows = [FAILED, other, unknown]
    orders = [arranged_jobs(rows, TERMS.parse(""), column, is_reversed=way) for way in (False, True)]
    if column in (JobColumn.STATE, JobColumn.NAME):
        assert orders[0] == orders[1][::-1]
    else:
        assert orders[0][-1] == orders[1][-1] == "c"
        assert orders[0][:2] == orders[1][:2][::-1]


@pytest.mark.parametrize("width", [40, 79, 119, 199])
def test_columns_fill_a_line_and_a_click_finds_them(width: int) -> None:
    rows = [FAILED, replace(FAILED, key="b", name="an-experiment-of-many-words", simulated=True)]
    columns = layout(natural_widths(rows), width)
    names = [column for column, _cells in columns]
    assert (JobColumn.WHY in names) is (width > 100)
    assert {JobColumn.STATE, JobColumn.NAME} <= set(names)
    for row in rows:
        pieces = row_pieces(row, columns, width, is_marked=True)
        assert sum(cell_len(text) for text, _part in pieces) <= width + 2
    head = "".join(text for text, _part in heading(columns, width, JobColumn.NAME, is_reversed=True))
    at = head.index("name▾")
    assert column_at(columns, width, at) is JobColumn.NAME
    assert column_at(columns, width, 0) is None
