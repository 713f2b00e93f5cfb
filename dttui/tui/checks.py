"""From the checks of a preflight to what the run screen shows of them. What came from a host is made clean here."""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content

from dttui.i18n import _
from dttui.jobs import Cell, Check, CheckStatus, JobView, cell_text, check_name, routes, shown_names, told_findings
from dttui.spec import Finding
from dttui.tui import symbols
from dttui.tui.rows import line
from dttui.tui.widgets.check_board import CheckBoard, CheckCell, CheckRow

MOST_ROWS = 500
"""Nodes that are shown; where there are more, those that need looking at."""
_COLOURS = {
    CheckStatus.PENDING: "muted",
    CheckStatus.NONE: "muted",
    CheckStatus.OK: "state-succeeded",
    CheckStatus.WARNING: "finding-warning",
    CheckStatus.UNKNOWN: "state-unknown",
    CheckStatus.ERROR: "finding-error",
}
_PENDING = Cell(CheckStatus.PENDING)


def show_checks(board: CheckBoard, view: JobView) -> None:
    """Put a job's checks on the board."""
    names = shown_names({name: view.checks.get(name, {}) for name in view.nodes}, MOST_ROWS)
    rows = tuple(_row(name, view) for name in names) if view.checks else ()
    board.show(tuple(check_name(check) for check in Check), rows)


def check_notes(view: JobView) -> Content:
    """Return what was found, the errors first, and how each node reaches the others."""
    lines = [_finding(item) for item in told_findings(view.findings)]
    lines += _routes(view)
    if not lines and not view.checks:
        return Content.styled(_("The preflight has not said anything yet."), "$muted")
    return Content("\n").join(lines)


def _row(name: str, view: JobView) -> CheckRow:
    checks = view.checks.get(name, {})
    cells = (checks.get(check, _PENDING) for check in Check)
    shown = tuple(CheckCell(cell_text(cell), _COLOURS[cell.status]) for cell in cells)
    return CheckRow(line(name), view.nodes[name].plan.node_rank == 0, shown)


def _finding(finding: Finding) -> Content:
    word = symbols.severity(finding.severity)
    return Content.assemble(
        (f"{word.symbol} ", f"bold ${word.colour}"),
        (f"{line(finding.code)}: ", f"${word.colour}"),
        line(finding.message),
        (symbols.hint(finding.hint), "$muted"),
    )


def _routes(view: JobView) -> Iterable[Content]:
    master = next(iter(view.nodes), "")
    for route in routes(view.checks):
        ends = [f"→ {line(master)} {line(route.to_master)}"] + [f"→ {line(route.to_next)}"] * bool(route.to_next)
        yield Content.styled(f"  {line(route.name)} " + "   ".join(ends), "$muted")
