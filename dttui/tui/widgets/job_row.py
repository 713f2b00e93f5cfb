"""One job as the list shows it, and how a row is laid out in cells: what there is no room for is left out whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from rich.cells import cell_len

from dttui.i18n import _
from dttui.timestamps import elapsed_s
from dttui.tui.symbols import StateWord, age, clock, number
from dttui.tui.widgets.cells import Part, Piece, fit

MARK_WIDTH = 4
"""Of the checkbox, with the room around it."""
LEAST_NAME, MOST_NAME = 16, 40
LEAST_WHY = 20
MOST_STATE, MOST_FRAMEWORK = 17, 16
WIDE = 140
"""Cells from which columns stand two apart."""


class JobColumn(Enum):
    """What is told of a job, from left to right."""

    STATE = "state"
    NAME = "name"
    FRAMEWORK = "framework"
    SIZE = "size"
    BEGUN = "begun"
    TOOK = "took"
    BEST = "best"
    STEP = "step"
    WHY = "why"


_AT_THE_RIGHT = (JobColumn.SIZE, JobColumn.BEGUN, JobColumn.TOOK, JobColumn.BEST, JobColumn.STEP)
_DROPPED = (
    JobColumn.WHY,
    JobColumn.FRAMEWORK,
    JobColumn.STEP,
    JobColumn.SIZE,
    JobColumn.TOOK,
    JobColumn.BEST,
    JobColumn.BEGUN,
)
"""What goes first where there is no room; all of it stands below the list."""
Layout = Sequence[tuple[JobColumn, int]]
"""The columns that there is room for, each with its cells."""


@dataclass(frozen=True)
class JobRow:
    """What the list shows of one job. All texts are clean."""

    key: str
    name: str
    state: StateWord
    framework: str
    nodes: int
    gpus: int
    simulated: bool
    begun_at: float | None
    """Unix time."""
    took_s: float | None
    best_loss: float | None
    last_step: int | None
    why: str
    """Why it is in its state; of one that failed, what the rank said that failed first."""
    search: str
    """All that a word of a filter is looked for in, folded."""
    states: tuple[str, ...] = ()
    """What its state is called, in any language."""
    hosts: tuple[str, ...] = ()
    cause: str = ""
    """Code of why it failed."""
    has_failed: bool = False

    def cell(self, column: JobColumn) -> str:
        """Return what stands in a column."""
        if column is JobColumn.BEGUN:
            return "" if self.begun_at is None else _("{age} ago").format(age=age(elapsed_s(self.begun_at)))
        return {
            JobColumn.STATE: str(self.state),
            JobColumn.NAME: self.name,
            JobColumn.FRAMEWORK: self.framework,
            JobColumn.SIZE: f"{self.nodes}/{self.gpus}" if self.nodes else "",
            JobColumn.TOOK: "" if self.took_s is None else clock(self.took_s),
            JobColumn.BEST: "" if self.best_loss is None else number(self.best_loss),
            JobColumn.STEP: "" if self.last_step is None else f"{self.last_step:,}",
            JobColumn.WHY: self.why,
        }[column]


def column_name(column: JobColumn) -> str:
    """Return the heading of a column."""
    return {
        JobColumn.STATE: _("state"),
        JobColumn.NAME: _("name"),
        JobColumn.FRAMEWORK: _("framework"),
        JobColumn.SIZE: _("nodes/GPUs"),
        JobColumn.BEGUN: _("begun"),
        JobColumn.TOOK: _("took"),
        JobColumn.BEST: _("best loss"),
        JobColumn.STEP: _("step"),
        JobColumn.WHY: _("why"),
    }[column]


def natural_widths(rows: Iterable[JobRow], before: Mapping[JobColumn, int] | None = None) -> dict[JobColumn, int]:
    """Return the cells that hold the headings and the texts of rows, and what `before` holds too; within reason."""
    widths = {column: cell_len(column_name(column)) + 1 for column in JobColumn} | dict(before or {})
    for row in rows:
        for column in JobColumn:
            extra = 1 + cell_len(_("sim")) if column is JobColumn.NAME and row.simulated else 0
            widths[column] = max(widths[column], cell_len(row.cell(column)) + extra)
    most = {JobColumn.STATE: MOST_STATE, JobColumn.NAME: MOST_NAME, JobColumn.FRAMEWORK: MOST_FRAMEWORK}
    return {column: min(width, most.get(column, width)) for column, width in widths.items()}


def layout(widths: Mapping[JobColumn, int], width: int) -> Layout:
    """Return the columns that fit into so many cells."""
    least = {**widths, JobColumn.WHY: LEAST_WHY, JobColumn.NAME: min(widths[JobColumn.NAME], LEAST_NAME)}
    kept = list(JobColumn)
    for dropped in (None, *_DROPPED):
        if dropped is not None:
            kept.remove(dropped)
        spare = width - MARK_WIDTH - sum(least[column] for column in kept) - gap(width) * (len(kept) - 1)
        if spare >= 0:
            break
    wider = min(max(spare, 0), widths[JobColumn.NAME] - least[JobColumn.NAME])
    least[JobColumn.NAME] += wider
    least[JobColumn.WHY] += max(0, spare - wider)
    return [(column, least[column]) for column in kept]


def gap(width: int) -> int:
    """Return how far apart columns stand in so many cells."""
    return 2 if width >= WIDE else 1


def heading(columns: Layout, width: int, sort: JobColumn, *, is_reversed: bool) -> list[Piece]:
    """Return the line above the rows, with a mark at the column by which they are sorted."""
    pieces: list[Piece] = [(" " * MARK_WIDTH, Part.MUTED)]
    for column, cells in columns:
        is_right = column in _AT_THE_RIGHT
        name = column_name(column)
        if column is sort:
            arrow = "▾" if is_reversed else "▴"
            name = f"{name}{arrow}"
        pieces.append((fit(name, cells, right=is_right), Part.NAME if column is sort else Part.MUTED))
        pieces.append((" " * gap(width), Part.MUTED))
    return pieces


def column_at(columns: Layout, width: int, x: int) -> JobColumn | None:
    """Return the column at a cell of a line; `None` left of them all."""
    start = MARK_WIDTH
    for column, cells in columns:
        if start <= x < start + cells + gap(width):
            return column
        start += cells + gap(width)
    return None


def row_pieces(row: JobRow, columns: Layout, width: int, *, is_marked: bool) -> list[Piece]:
    """Return one row in pieces."""
    pieces: list[Piece] = [(" ☑  " if is_marked else " ☐  ", Part.TICK if is_marked else Part.MUTED)]
    for column, cells in columns:
        if column is JobColumn.NAME:
            pieces += _name(row, cells)
        else:
            text = fit(row.cell(column), cells, right=column in _AT_THE_RIGHT)
            pieces.append((text, _part(row, column)))
        pieces.append((" " * gap(width), Part.PLAIN))
    return pieces


def _part(row: JobRow, column: JobColumn) -> Part | str:
    if column is JobColumn.STATE or (column is JobColumn.WHY and row.has_failed):
        return row.state.colour
    return Part.MUTED if column in (JobColumn.FRAMEWORK, JobColumn.BEGUN, JobColumn.WHY) else Part.PLAIN


def _name(row: JobRow, cells: int) -> list[Piece]:
    """Return what it is called, and behind it, whatever has to be cut, that its GPUs are simulated."""
    if not row.simulated:
        return [(fit(row.name, cells), Part.NAME)]
    mark = " " + _("sim")
    kept = fit(row.name, min(cell_len(row.name), cells - cell_len(mark)))
    return [(kept, Part.NAME), (fit(mark, cells - cell_len(kept)), Part.SIMULATED)]
