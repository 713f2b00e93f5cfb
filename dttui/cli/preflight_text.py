"""The board of a preflight as lines of text, as wide as the terminal."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from dttui.cli.printing import one_line
from dttui.i18n import _, ngettext
from dttui.jobs import Board, Cell, Check, CheckStatus, cell_text, check_name
from dttui.planning import folded
from dttui.sanitize import clean
from dttui.spec import Severity

COLUMN = 6
"""Cells of a check, a blank included; where there is room they get one more."""
MIN_NAME = 8
_MARKS = {Severity.ERROR: "✗", Severity.WARNING: "⚠", Severity.INFO: "·"}


def board_lines(board: Board, *, fits_screen: bool = False) -> list[str]:
    """Return a row a node and a column a check.

    Args:
        board: what is known so far.
        fits_screen: no more than the terminal shows: of the rows those that matter most.
    """
    size = shutil.get_terminal_size((120, 40))
    column = COLUMN + 1 if size.columns >= MIN_NAME * 2 + (COLUMN + 1) * len(Check) else COLUMN
    longest = max(map(_width, board.names), default=0) + 2
    room = min(longest, max(MIN_NAME, size.columns - 1 - column * len(Check)))
    lines = [_padded(_("node"), room) + "".join(" " + _padded(check_name(check), column - 1) for check in Check)]
    names = list(board.names)
    if fits_screen and len(names) > size.lines - 3:
        names = sorted(names, key=lambda name: -_worst(board.rows[name].values()))[: size.lines - 4]
    for name in names:
        mark = "★ " if name == board.names[0] else "  "
        row = board.rows[name]
        cells = "".join(" " + _padded(cell_text(row[check]), column - 1) for check in Check)
        lines.append(_padded(mark + clean(name), room) + cells)
    if len(names) < len(board.names):
        lines.append(_("and {count} more").format(count=len(board.names) - len(names)))
    return [_cut(line, size.columns - 1) if fits_screen else line.rstrip() for line in lines]


def result_lines(board: Board, seconds: float) -> Iterator[str]:
    """Yield what there is to say below the board: routes, differences, findings, the sum."""
    routes = [(name, board.rows[name][Check.MASTER], board.rows[name][Check.PEERS]) for name in board.names]
    shown = [item for item in routes if item[1].text and item[1].status is not CheckStatus.NONE]
    if shown and len(board.names) > 1:
        yield ""
        head = (_("route"), _("to {node}").format(node=clean(board.names[0])), _("to the next"))
        yield from _table([head, *((clean(name), master.text, peers.text) for name, master, peers in shown)])
    if board.drift:
        yield ""
        yield from _drift_lines(board)
    if board.findings:
        yield ""
    told = folded(board.findings)
    for finding in told:
        hint = f" → {finding.hint}" if finding.hint else ""
        yield one_line(f"{_MARKS[finding.severity]} {finding.code}: {finding.message}{hint}")
    yield ""
    counts = [sum(finding.severity is level for finding in told) for level in (Severity.ERROR, Severity.WARNING)]
    nodes = ngettext("{count} node", "{count} nodes", len(board.names)).format(count=len(board.names))
    errors = ngettext("{count} error", "{count} errors", counts[0]).format(count=counts[0])
    warnings = ngettext("{count} warning", "{count} warnings", counts[1]).format(count=counts[1])
    text = _("{nodes} checked in {seconds} s: {errors}, {warnings}")
    yield text.format(nodes=nodes, seconds=f"{seconds:.1f}", errors=errors, warnings=warnings)


def _drift_lines(board: Board) -> Iterator[str]:
    """Yield a table: a row a thing that differs, what most have, and who has something else."""
    rows = [(_("differs"), _("most have"), _("others"))]
    for item in board.drift:
        others = "   ".join(f"{value}: {', '.join(names)}" for value, names in item.others.items())
        rows.append((item.item, f"{item.usual} ({len(item.usual_nodes)})", others))
    yield from _table(rows)


def _table(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    widths = [max(_width(row[column]) for row in rows) for column in range(2)]
    for row in rows:
        yield one_line("  ".join([_padded(row[0], widths[0]), _padded(row[1], widths[1]), row[2]])).rstrip()


def _worst(cells: Iterable[Cell]) -> int:
    order = list(CheckStatus)
    return max(order.index(cell.status) for cell in cells)


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _padded(text: str, width: int) -> str:
    """Return the text in exactly so many cells."""
    text = _cut(text, width)
    return text + " " * (width - _width(text))


def _cut(text: str, width: int) -> str:
    """Return the text in so many cells at most."""
    text = text.rstrip() if _width(text) > width else text
    while _width(text) > width:
        text = text[:-2] + "…"
    return text
