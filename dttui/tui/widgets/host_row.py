"""One host as the list of hosts shows it, and how that is laid out in one line of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.cells import cell_len

from dttui.i18n import N_, _
from dttui.timestamps import elapsed_s
from dttui.tui.symbols import age
from dttui.tui.widgets.cells import Part, Piece, fit
from dttui.tui.widgets.environment_row import EnvironmentRow

MARK_WIDTH = 3
GAP = 2
NOTE_WIDTH = 26
"""Room of what is said of a host, for which columns are left out that are not needed."""
LEAST_NOTE_WIDTH = 18
"""Of that, for which needed columns are cut."""
NOW_S = 15.0
"""Who was heard within so long is heard now."""


@dataclass(frozen=True)
class HostRow(EnvironmentRow):
    """What the list shows of one host besides. All texts are clean."""

    agent: str = ""
    """Its version, or that there is none."""
    agent_part: Part = Part.PLAIN
    heard_at: float | None = None
    """Unix time."""
    driver: str = ""
    """With the newest CUDA that it runs."""
    torch: str = ""
    python: str = ""
    way: str = ""
    """How it is reached."""
    task: str = ""
    """What is being done there, or was."""
    task_brief: str = ""
    """The same in a word or two."""
    task_part: Part | str = Part.PLAIN
    """A Part, or a theme variable of a state."""

    @property
    def state_since(self) -> str:
        """The state, and for how long."""
        return f"{self.state} {age(elapsed_s(self.since))}" if self.since else str(self.state)

    @property
    def heard(self) -> str:
        """How long ago its agent said something."""
        if self.heard_at is None:
            return "–"
        silence_s = elapsed_s(self.heard_at)
        return _("now") if silence_s < NOW_S else age(silence_s)

    @property
    def simulated_mark(self) -> str:
        """What stands behind its GPUs where they are simulated."""
        return " " + _("sim") if self.simulated else ""

    @property
    def said(self) -> tuple[str, Part | str]:
        """What there is to say of it: what is done there, what is wrong, or who uses it."""
        if self.task:
            return self.task, self.task_part
        return (self.problem, Part.PROBLEM) if self.problem else (self.note, Part.MUTED)

    def said_in(self, room: int) -> tuple[str, Part | str]:
        """What there is to say of it in so many cells: what came of something in a word, where there are few."""
        said, part = self.said
        is_brief = self.task and cell_len(said) > room and room < NOTE_WIDTH
        return (self.task_brief, part) if is_brief else (said, part)


@dataclass(frozen=True)
class Column:
    """A column of the list."""

    name: str
    """By which it is sorted."""
    title: str
    text: Callable[[HostRow], str]
    least: int
    most: int
    part: Callable[[HostRow], Part | str] = lambda row: Part.PLAIN
    is_needed: bool = False
    """Whether it is there however narrow the screen is."""


COLUMNS = (
    Column("name", N_("host"), lambda row: row.name, 14, 30, lambda row: Part.NAME, is_needed=True),
    Column("state", N_("state"), lambda row: row.state_since, 13, 18, lambda row: row.state.colour, is_needed=True),
    Column("agent", N_("agent"), lambda row: row.agent, 11, 16, lambda row: row.agent_part, is_needed=True),
    Column("gpus", N_("GPU"), lambda row: row.gpus + row.simulated_mark, 11, 24, is_needed=True),
    Column("heard", N_("heard"), lambda row: row.heard, 5, 6, lambda row: Part.MUTED),
    Column("zone", N_("zone"), lambda row: row.zone, 6, 16),
    Column("torch", N_("torch"), lambda row: row.torch, 7, 12),
    Column("driver", N_("driver · CUDA"), lambda row: row.driver, 10, 18, lambda row: Part.MUTED),
    Column("python", N_("Python"), lambda row: row.python, 7, 8, lambda row: Part.MUTED),
    Column("way", N_("reached by"), lambda row: row.way, 8, 26, lambda row: Part.MUTED),
)
"""In the order in which they get room; what is said of the host comes last, with all that is left."""


@dataclass(frozen=True)
class HostColumns:
    """Widths in cells of the columns that are shown, by name."""

    widths: dict[str, int]

    @classmethod
    def of(cls, rows: Iterable[HostRow]) -> HostColumns:
        """Return widths that hold the texts of these rows, within reason."""
        widths = {column.name: max(column.least, cell_len(_(column.title)) + 2) for column in COLUMNS}
        for row in rows:
            for column in COLUMNS:
                widths[column.name] = max(widths[column.name], min(cell_len(column.text(row)), column.most))
        return cls(widths)

    def widened(self, other: HostColumns) -> HostColumns:
        """Return widths that hold what either holds."""
        return HostColumns({name: max(width, other.widths[name]) for name, width in self.widths.items()})

    def fitting(self, width: int) -> list[tuple[Column, int]]:
        """Return the columns for which there is room in so many cells, with the width of each."""
        shown = []
        room = width - MARK_WIDTH - NOTE_WIDTH
        for column in COLUMNS:
            wide = self.widths[column.name]
            if not column.is_needed and room < wide + GAP:
                break
            shown.append((column, wide))
            room -= wide + GAP
        room += NOTE_WIDTH - LEAST_NOTE_WIDTH
        while room < 0 and any(wide > column.least for column, wide in shown):
            at = max(range(len(shown)), key=lambda index: shown[index][1] - shown[index][0].least)
            column, wide = shown[at]
            shown[at] = column, wide - 1
            room += 1
        return shown


def header_pieces(columns: list[tuple[Column, int]], width: int, sorted_by: str, *, is_reversed: bool) -> list[Piece]:
    """Return the names of the columns, with a mark at that by which the rows are sorted."""
    pieces: list[Piece] = [(" " * MARK_WIDTH, Part.MUTED)]
    for column, wide in columns:
        mark = (" ▾" if is_reversed else " ▴") if column.name == sorted_by else ""
        pieces.append((fit(_(column.title) + mark, wide) + " " * GAP, Part.MUTED))
    return [*pieces, (fit(_("use or action"), width - used_by(columns)), Part.MUTED)]


def host_pieces(row: HostRow, columns: list[tuple[Column, int]], width: int, *, is_marked: bool) -> list[Piece]:
    """Return the line of a host, in pieces."""
    pieces: list[Piece] = [(" ☑ " if is_marked else " ☐ ", Part.TICK if is_marked else Part.MUTED)]
    for column, wide in columns:
        if column.name == "gpus" and row.simulated:  # However little room there is, the mark stays.
            room = wide - cell_len(row.simulated_mark)
            text = fit(row.gpus, min(cell_len(row.gpus), room))
            mark = fit(row.simulated_mark, wide - cell_len(text) + GAP)
            pieces += [(text, Part.PLAIN), (mark, Part.SIMULATED)]
        else:
            pieces.append((fit(column.text(row), wide) + " " * GAP, column.part(row)))
    room = width - used_by(columns)
    said, part = row.said_in(room)
    return [*pieces, (fit(said, room), part)]


def used_by(columns: list[tuple[Column, int]]) -> int:
    """Return the cells that mark and columns take."""
    return MARK_WIDTH + sum(wide + GAP for _column, wide in columns)


def column_at(columns: list[tuple[Column, int]], x: int) -> str | None:
    """Return the name of the column at a cell; `None` where there is none."""
    left = MARK_WIDTH
    for column, wide in columns:
        if left <= x < left + wide + GAP:
            return column.name
        left += wide + GAP
    return None
