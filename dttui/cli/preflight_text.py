"""The board of a preflight as lines of text, as wide as the terminal."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from dttui.cli.printing import finding_text, one_line, table_text
from dttui.i18n import _, ngettext
from dttui.jobs import Board, Check, board_widths, cell_text, check_name, routes, shown_names
from dttui.planning import merged
from dttui.sanitize import clean
from dttui.spec import Severity, text_width


def board_lines(board: Board, *, fits_screen: bool = False) -> list[str]:
    """Return a row a node and a column a check.

    Args:
        board: what is known so far.
        fits_screen: no more than the terminal shows: of the rows those that matter most.
    """
    size = shutil.get_terminal_size((120, 40))
    room, column = board_widths(max(map(text_width, board.names), default=0), size.columns - 1)
    lines = [_padded(_("node"), room) + "".join(" " + _padded(check_name(check), column - 1) for check in Check)]
    most = len(board.names)
    if fits_screen and most > size.lines - 3:
        most = size.lines - 4  # The heading, and how many are left out, have lines of their own.
    names = shown_names(board.rows, most)
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
    if found := list(routes(board.rows)):
        yield ""
        head = (_("route"), _("to {node}").format(node=clean(board.names[0])), _("to the next"))
        rows = [(item.name, item.to_master, item.to_next) for item in found]
        yield from table_text(head, rows).splitlines()
    if board.drift:
        yield ""
        yield from _drift_lines(board)
    if board.findings:
        yield ""
    told = merged(board.findings)
    for finding in told:
        yield one_line(finding_text(finding.severity, f"{finding.code}: ", finding.message, finding.hint))
    yield ""
    counts = [sum(finding.severity is level for finding in told) for level in (Severity.ERROR, Severity.WARNING)]
    nodes = ngettext("{count} node", "{count} nodes", len(board.names)).format(count=len(board.names))
    errors = ngettext("{count} error", "{count} errors", counts[0]).format(count=counts[0])
    warnings = ngettext("{count} warning", "{count} warnings", counts[1]).format(count=counts[1])
    text = _("{nodes} checked in {seconds} s: {errors}, {warnings}")
    yield text.format(nodes=nodes, seconds=f"{seconds:.1f}", errors=errors, warnings=warnings)


def _drift_lines(board: Board) -> Iterator[str]:
    """Yield a table: a row a thing that differs, what most have, and who has something else."""
    rows = []
    for item in board.drift:
        others = "   ".join(f"{value}: {', '.join(names)}" for value, names in item.others.items())
        rows.append((item.item, f"{item.usual} ({len(item.usual_nodes)})", others))
    yield from table_text((_("differs"), _("most have"), _("others")), rows).splitlines()


def _padded(text: str, width: int) -> str:
    """Return the text in exactly so many cells."""
    text = _cut(text, width)
    return text + " " * (width - text_width(text))


def _cut(text: str, width: int) -> str:
    """Return the text in so many cells at most."""
    text = text.rstrip() if text_width(text) > width else text
    while text_width(text) > width:
        text = text[:-2] + "…"
    return text
