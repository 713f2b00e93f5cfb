"""One node of a job as the run screen shows it: its ranks as cells, laid out in as many lines as they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, zip_longest

from rich.cells import cell_len

from dttui.i18n import _
from dttui.tui.symbols import StateWord
from dttui.tui.widgets.cells import Part, Piece, bar, fit, sparkline

BAR_WIDTH, WIDE_BAR = 4, 12
MEMORY_BAR = 4
TREND, LEAST_TREND = 24, 6
"""Readings that are drawn beside a load where there is room, and the fewest that tell anything."""
MOST_TOLD = 24
"""Cells that are made for what is told of a rank that failed."""
TREND_PART = "trend"
WANTED = MEMORY_BAR + LEAST_TREND + 4
"""Cells that each rank is to have for bars and readings, where there are lines enough."""
GAP = 2
NARROW = 100
"""Below this many cells a node's ranks begin on a line of their own."""
INDENT = 4
_HEADED = (4, 4)
"""Least widths of the first two columns of texts, which have a heading."""


@dataclass(frozen=True)
class SlotCell:
    """One rank, and what is under it."""

    rank: int
    load: float | None
    texts: tuple[str, ...]
    """Load, memory and what else there is; each empty where it is not known."""
    error: str
    memory: float | None = None
    """Which share of its memory is in use."""
    is_late: bool = False
    """Whether the others wait for it."""

    @property
    def is_blank(self) -> bool:
        """Whether there is no reading."""
        return not any(self.texts)


@dataclass(frozen=True)
class NodeRow:
    """What is shown of one node. All texts are clean."""

    name: str
    is_master: bool
    state: StateWord
    ranks: str
    """`2–5`."""
    simulated: bool
    problem: str
    note: str
    """More about the state."""
    labels: tuple[str, str]
    """What load and memory are of."""
    slots: tuple[SlotCell, ...]
    """Ranks that there is something to show of."""
    figures: tuple[str, ...] = ()
    """What the host itself reads; each empty where it is not known."""

    @cached_property
    def text_widths(self) -> tuple[int, ...]:
        """Widest of each column of texts of its slots: rows are laid out again and again, and seldom others."""
        return tuple(
            max(map(cell_len, column)) for column in zip_longest(*(slot.texts for slot in self.slots), fillvalue="")
        )

    @cached_property
    def rank_digits(self) -> int:
        """Digits of its largest rank."""
        return max((len(str(slot.rank)) for slot in self.slots), default=1)

    @cached_property
    def has_readings(self) -> bool:
        """Whether anything was read of a slot."""
        return any(not slot.is_blank for slot in self.slots)

    @cached_property
    def told_width(self) -> int:
        """Cells that are made for what is told of its ranks that failed."""
        return max((min(cell_len(slot.error) + 2, MOST_TOLD) for slot in self.slots), default=0)

    @cached_property
    def reads_memory(self) -> bool:
        """Whether it is known of any slot which share of its memory is in use."""
        return any(slot.memory is not None for slot in self.slots)


@dataclass(frozen=True)
class Grid:
    """Widths that all rows share, so that cells align down the screen."""

    width: int
    name: int
    state: int
    ranks: int
    rank: int
    """Digits of the largest rank."""
    texts: tuple[int, ...]
    """Widths of load, memory and the rest; 0 where no slot has one."""
    labels: tuple[str, str] | None
    """What stands over load and memory; `None` where nothing was read."""
    most_slots: int
    """Of a row."""
    figures: tuple[int, ...] = ()
    """Widths of what hosts read, the first of them for which there is room; 0 where no host has it."""
    bar: int = BAR_WIDTH
    told: int = 0
    """Width of what is told of ranks that failed, where nothing else is."""
    reads_memory: bool = False
    """Whether it is known of any slot which share of its memory is in use."""
    memory_bar: int = 0
    trend: int = 0
    """Of the newest loads."""

    @classmethod
    def for_rows(cls, rows: tuple[NodeRow, ...], width: int, height: int = 0) -> Grid:
        """Return the widths that these rows need, and what more they have room for.

        Args:
            rows: all of them.
            width: cells.
            height: lines that they may take; what they need at least they have in any case.
        """
        labels = {row.labels for row in rows if row.has_readings}
        columns = zip_longest(_HEADED, *(row.text_widths for row in rows), fillvalue=0)
        grid = cls(
            width=width,
            name=min(max((cell_len(row.name) for row in rows), default=0), 30),
            state=max((cell_len(str(row.state)) for row in rows), default=0),
            ranks=max((cell_len(_ranks(row)) for row in rows), default=0),
            rank=max((row.rank_digits for row in rows), default=1),
            texts=tuple(max(column) for column in columns),
            labels=next(iter(labels)) if len(labels) == 1 else (_("load"), _("mem")) if labels else None,
            most_slots=max((len(row.slots) for row in rows), default=0),
            told=0 if labels else max((row.told_width for row in rows), default=0),
            reads_memory=any(row.reads_memory for row in rows),
        )
        figures = zip_longest(*(row.figures for row in rows), fillvalue="")
        widths = [max(map(cell_len, column)) for column in figures]
        ends = accumulate((size + GAP if size else 0 for size in widths), initial=grid.head)
        next(ends)
        grid = replace(grid, figures=tuple(size for size, end in zip(widths, ends, strict=True) if end <= width))
        return grid.widened(rows, height) if grid.labels is not None else grid

    def widened(self, rows: tuple[NodeRow, ...], height: int) -> Grid:
        """Return the same with what there is room for in as many lines, and in more where so many may be had."""
        lines = -(-self.most_slots // self.cells_a_line)
        found = self._with_room(lines)
        while found.extra < WANTED and lines < self.most_slots and len(rows) * lines < height:
            lines += 1
            wider = self._with_room(lines)
            if 1 + sum(height_of(row, wider) for row in rows) > height:
                break
            found = wider
        return found

    def _with_room(self, lines: int) -> Grid:
        """Return the same with what there is room for where ranks take so many lines."""
        room = (self.width - self.indent) // -(-self.most_slots // lines) - self.cell
        memory = MEMORY_BAR if self.reads_memory and room > MEMORY_BAR + 1 + LEAST_TREND else 0
        room -= memory + bool(memory)
        trend = min(TREND, room - 1) if room > LEAST_TREND else 0
        room -= trend + bool(trend)
        return replace(self, memory_bar=memory, trend=trend, bar=self.bar + max(0, min(WIDE_BAR - self.bar, room)))

    @property
    def extra(self) -> int:
        """Cells of a rank that it would do without."""
        return self.bar - BAR_WIDTH + self.memory_bar + self.trend

    @property
    def head(self) -> int:
        """Width of what stands first in a row: its name, state and ranks."""
        return 3 + self.name + self.state + self.ranks + 3 * GAP

    @property
    def is_stacked(self) -> bool:
        """Whether ranks begin on a line of their own: what hosts read takes their place, and costs no rank its own."""
        return self.width < NARROW or any(self.figures)

    @property
    def indent(self) -> int:
        """Where cells begin."""
        return INDENT if self.is_stacked else self.head

    @property
    def cell(self) -> int:
        """Width of a rank's cell with the gap after it."""
        bars = self.bar + sum(width + 1 for width in (self.memory_bar, self.trend) if width)
        return self.rank + 1 + max(self.told, bars + sum(width + 1 for width in self.texts if width)) + GAP

    @property
    def cells_a_line(self) -> int:
        """Ranks that fit side by side."""
        return max(1, (self.width - self.indent) // self.cell)


def heading(grid: Grid) -> list[list[Piece]]:
    """Return the line over all rows that names what the cells show, or none where they show nothing."""
    if grid.labels is None:
        return []
    load, memory = grid.labels
    loads = grid.bar + 1 + grid.texts[0] + (grid.trend + 1 if grid.trend else 0)
    memories = grid.texts[1] + (grid.memory_bar + 1 if grid.memory_bar else 0)
    texts = (" " * grid.rank, fit(load, loads), fit(memory, memories, right=not grid.memory_bar))
    cells = fit(" ".join(texts), grid.cell) * min(grid.cells_a_line, grid.most_slots)
    return [[(" " * grid.indent + cells, Part.MUTED)]]


Trend = Callable[[int], Sequence[int | None]]
"""The newest loads of a slot in percent, by its place in the row."""


def lines_of(row: NodeRow, grid: Grid, trend: Trend = lambda slot: ()) -> list[list[Piece]]:
    """Return the row's lines, in pieces."""
    head: list[Piece] = [
        (" ★ " if row.is_master else "   ", Part.MASTER),
        (fit(row.name, grid.name), Part.NAME),
        (" " * GAP, Part.PLAIN),
        (fit(str(row.state), grid.state), row.state.colour),
        (" " * GAP, Part.PLAIN),
        *_pad(_rank_pieces(row), grid.ranks),
        (" " * GAP, Part.PLAIN),
    ]
    if row.note:
        used = sum(cell_len(text) for text, _part in head)
        head.append((fit(row.note, min(cell_len(row.note), grid.width - used)), Part.PLAIN))
    else:
        figures = zip((*row.figures, *[""] * len(grid.figures)), grid.figures, strict=False)
        head += [(fit(text, size) + " " * GAP, Part.PLAIN) for text, size in figures if size]
    slots = [
        [
            piece
            for place, slot in enumerate(row.slots[start : start + grid.cells_a_line], start)
            for piece in _cell(slot, grid, trend(place) if grid.trend else ())
        ]
        for start in range(0, len(row.slots), grid.cells_a_line)
    ]
    indent: list[Piece] = [(" " * grid.indent, Part.PLAIN)]
    if grid.is_stacked or not slots or row.note:
        lines = [head, *([*indent, *line] for line in slots)]
    else:
        lines = [[*head, *slots[0]], *([*indent, *line] for line in slots[1:])]
    if row.problem:
        lines.append([(" " * INDENT, Part.PLAIN), (fit(f"✗ {row.problem}", grid.width - INDENT - 1), Part.PROBLEM)])
    return lines


def height_of(row: NodeRow, grid: Grid) -> int:
    """Return how many lines `lines_of` gives."""
    slots = -(-len(row.slots) // grid.cells_a_line)
    return (1 + slots if grid.is_stacked or row.note else max(slots, 1)) + bool(row.problem)


def _ranks(row: NodeRow) -> str:
    return "".join(text for text, _part in _rank_pieces(row))


def _rank_pieces(row: NodeRow) -> list[Piece]:
    label = _("ranks {ranks}") if "–" in row.ranks else _("rank {ranks}")
    if not row.ranks:  # Of a node that an elastic job goes on without.
        return [(_("no ranks"), Part.MUTED)]
    pieces: list[Piece] = [(label.format(ranks=row.ranks), Part.MUTED)]
    if row.simulated:
        pieces.append((" " + _("sim"), Part.SIMULATED))
    return pieces


def _pad(pieces: list[Piece], width: int) -> list[Piece]:
    used = sum(cell_len(text) for text, _part in pieces)
    return [*pieces, (" " * (width - used), Part.PLAIN)]


def _cell(slot: SlotCell, grid: Grid, loads: Sequence[int | None]) -> list[Piece]:
    rank: Piece = (f"{slot.rank:>{grid.rank}} ", Part.MUTED)
    if slot.is_late:
        rank = (f"{slot.rank:>{grid.rank}}⚠", Part.PROBLEM)
    room = grid.cell - grid.rank - 1
    if slot.error:
        return [rank, (fit(f"⚠ {slot.error}", room - GAP), Part.PROBLEM), (" " * GAP, Part.PLAIN)]
    if slot.is_blank:
        return [rank, (fit("–", room), Part.MUTED)]
    columns = zip((*slot.texts, *[""] * len(grid.texts)), grid.texts, strict=False)
    texts = [fit(text, width, right=True) for text, width in columns if width]
    pieces: list[Piece] = [rank, *_bar(slot.load, grid.bar), (f" {texts[0]}", Part.PLAIN)]
    if grid.trend:
        pieces.append((f" {sparkline(loads, grid.trend)}", TREND_PART))
    if grid.memory_bar:
        pieces += [(" ", Part.PLAIN), *_bar(slot.memory, grid.memory_bar)]
    return [*pieces, ("".join(f" {text}" for text in texts[1:]) + " " * GAP, Part.PLAIN)]


def _bar(share: float | None, width: int) -> list[Piece]:
    filled, empty = bar(share or 0.0, width)
    return [(filled, Part.BAR), (empty, Part.TRACK)]
