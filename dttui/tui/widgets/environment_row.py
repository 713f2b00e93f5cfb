"""One environment as the list shows it: what is known of it, and how that is laid out in one or two lines of cells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace

from rich.cells import cell_len

from dttui.i18n import _
from dttui.timestamps import elapsed_s
from dttui.tui.symbols import StateWord, age, duration
from dttui.tui.widgets.cells import Part, Piece, bar, fit

MARKS_WIDTH = 6
"""Checkbox and star, with the room around them."""
BAR_WIDTH = 5
LOAD_WIDTH = 4 + BAR_WIDTH + 5
UPTIME_WIDTH = 13
STATE_WIDTH = 16
"""Room for the word of every state; what stands after it gets more where there is some to spare."""
MOST_STATE_WIDTH = 32
MIN_NOTE_WIDTH = 2
BADGE_WIDTH = 9
"""The word on the master, in its ground, and the space before it."""
GAP = 2


@dataclass(frozen=True)
class EnvironmentRow:
    """What the list shows of one environment. All texts are clean."""

    key: str
    name: str
    kind: str
    zone: str
    image: str
    state: StateWord
    note: str
    """Put in brackets after the state: who uses it."""
    since: float
    """Unix time at which it came into this state."""
    gpus: str
    """`2×A100-80GB`."""
    gpu_count: int
    simulated: bool
    load_label: str
    """What is loaded: GPU or CPU."""
    load: float | None
    """From 0 to 1."""
    booted_at: float | None
    """Unix time."""
    problem: str
    """Why it cannot be used; empty where it can."""
    shows_age: bool
    """Whether it matters how long it has been in this state."""
    search: str
    """All that a filter looks at, folded."""
    states: tuple[str, ...] = ()
    """What its state is called, in any language."""
    kinds: tuple[str, ...] = ()
    """What its kind is called, in any language."""
    free_gpus: int | None = None
    """GPUs that nobody has; `None` where that is not known."""
    cpus: int | None = None
    memory_gb: float | None = None
    """Of the host."""

    def state_text(self, width: int) -> str:
        """Return the state, and since when or by whom; where that is too long, its end is cut and never the state."""
        if self.shows_age:
            return f"{self.state} {age(elapsed_s(self.since))}"
        room = width - cell_len(f"{self.state} ()")
        if not self.note or room < MIN_NOTE_WIDTH:
            return str(self.state)
        return f"{self.state} ({fit(self.note, min(cell_len(self.note), room))})"


@dataclass(frozen=True)
class Columns:
    """Widths in cells, so that all rows align."""

    name: int
    kind: int
    zone: int
    state: int
    gpus: int
    image: int

    @classmethod
    def for_rows(cls, rows: Iterable[EnvironmentRow]) -> Columns:
        """Return widths that hold the texts of these rows, within reason."""
        name, kind, zone, state, gpus, image = 12, 0, 0, STATE_WIDTH, 6, 0
        for row in rows:
            name = max(name, cell_len(row.name))
            kind = max(kind, cell_len(row.kind))
            zone = max(zone, cell_len(row.zone))
            state = max(state, cell_len(row.state_text(MOST_STATE_WIDTH)))
            gpus = max(gpus, cell_len(row.gpus) + (1 + cell_len(_("sim")) if row.simulated else 0))
            image = max(image, cell_len(row.image))
        return cls(min(name, 34), min(kind, 12), min(zone, 16), state, min(gpus, 26), min(image, 18))

    def widened(self, other: Columns) -> Columns:
        """Return widths that hold what either holds."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Columns(*(max(one, two) for one, two in pairs))

    @property
    def one_line_width(self) -> int:
        """Fewest cells at which a row fits on one line."""
        return self._identity_width + sum(width + GAP for width in (self.gpus, LOAD_WIDTH, self.image, UPTIME_WIDTH))

    def fitted(self, width: int, *, two: bool) -> Columns:
        """Return the columns for rows of so many cells: the state gets what the others leave."""
        spare = width - (self._identity_width if two else self.one_line_width)
        return replace(self, state=STATE_WIDTH + min(max(spare, 0), self.state - STATE_WIDTH))

    @property
    def _identity_width(self) -> int:
        """Cells of the first of two lines."""
        return MARKS_WIDTH + sum(width + GAP for width in (self.name + BADGE_WIDTH, self.kind, STATE_WIDTH, self.zone))


def lines_of(
    row: EnvironmentRow, columns: Columns, width: int, ticked: bool, master: bool, *, two: bool
) -> list[list[Piece]]:
    """Return the row's lines, in pieces. They may be shorter than `width`, never longer."""
    columns = columns.fitted(width, two=two)
    marks: list[Piece] = [
        (" ☑ " if ticked else " ☐ ", Part.TICK if ticked else Part.MUTED),
        ("★ " if master else "  ", Part.MASTER),
    ]
    if two:
        room = width - MARKS_WIDTH + 1 - columns.state - columns.zone - 2 * GAP
        shows_kind = _has_room_for_kind(room, columns)
        room = min(room - (columns.kind + GAP if shows_kind else 0), columns.name + BADGE_WIDTH + GAP)
        identity = _identity(row, columns, shows_kind=shows_kind)
        second: list[Piece] = [(" " * 5, Part.PLAIN), *_resources(row, columns, width - 5)]
        return [[*marks, *_name(row, max(room, 8), master), *identity], second]
    head = [*marks, *_name(row, columns.name + BADGE_WIDTH + GAP, master), *_identity(row, columns, shows_kind=True)]
    used = sum(cell_len(text) for text, _part in head)
    return [[*head, *_resources(row, columns, width - used)]]


def _has_room_for_kind(room: int, columns: Columns) -> bool:
    """Whether the tag can be shown in `room` cells: names are worth more than it, and so is the master's badge."""
    beside = room - columns.kind - GAP
    wanted = columns.name + BADGE_WIDTH
    return columns.kind > 0 and (beside >= wanted or (room < wanted and beside > columns.name))


def _name(row: EnvironmentRow, width: int, master: bool) -> list[Piece]:
    badge = " " + _("master") + " "
    name_width = cell_len(row.name)
    if not master or name_width + 2 + cell_len(badge) > width:
        return [(fit(row.name, width - 1), Part.NAME), (" ", Part.PLAIN)]
    rest = width - name_width - 1 - cell_len(badge)
    return [(row.name, Part.NAME), (" ", Part.PLAIN), (badge, Part.BADGE), (" " * rest, Part.PLAIN)]


def _identity(row: EnvironmentRow, columns: Columns, *, shows_kind: bool) -> list[Piece]:
    pieces: list[Piece] = [
        (fit(row.state_text(columns.state), columns.state), row.state.colour),
        (" " * GAP + fit(row.zone, columns.zone), Part.PLAIN),
    ]
    if shows_kind:
        pieces.append((" " * GAP + fit(row.kind, columns.kind), Part.MUTED))
    return [*pieces, (" " * GAP, Part.PLAIN)]


def _resources(row: EnvironmentRow, columns: Columns, width: int) -> list[Piece]:
    mark = " " + _("sim") if row.simulated else ""
    gpus = fit(row.gpus, columns.gpus - cell_len(mark)).rstrip()
    padding = " " * (columns.gpus - cell_len(gpus) - cell_len(mark) + GAP)
    pieces: list[Piece] = [(gpus, Part.PLAIN), (mark, Part.SIMULATED), (padding, Part.PLAIN)]
    room = width - columns.gpus - GAP
    if row.problem:
        return [*pieces, (fit(row.problem, room).rstrip(), Part.PROBLEM)]
    if room >= LOAD_WIDTH:
        pieces += _load(row)
        room -= LOAD_WIDTH
    for text, wanted in ((row.image, columns.image), (_uptime(row), UPTIME_WIDTH)):
        if wanted and room >= wanted + GAP:
            pieces.append((" " * GAP + fit(text, wanted), Part.MUTED))
            room -= wanted + GAP
    return pieces


def _load(row: EnvironmentRow) -> list[Piece]:
    if row.load is None:
        return [(" " * LOAD_WIDTH, Part.PLAIN)]
    filled, empty = bar(row.load, BAR_WIDTH)
    return [
        (fit(row.load_label, 4), Part.MUTED),
        (filled, Part.BAR),
        (empty, Part.TRACK),
        (f"{min(row.load, 9.99):>5.0%}", Part.PLAIN),
    ]


def _uptime(row: EnvironmentRow) -> str:
    if row.booted_at is None:
        return ""
    return _("up {duration}").format(duration=duration(elapsed_s(row.booted_at)))
