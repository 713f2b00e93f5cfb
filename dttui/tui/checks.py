"""From the checks of a preflight to what the run screen shows of them. What came from a host is made clean here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dtagent.protocol.events import Event
from textual.content import Content

from dttui.i18n import _
from dttui.jobs import Cell, Check, CheckStatus, JobView, cell_text, check_name
from dttui.spec import Severity
from dttui.tui import words
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
_ORDER = tuple(CheckStatus)
_PENDING = Cell(CheckStatus.PENDING)


def show_checks(board: CheckBoard, view: JobView) -> None:
    """Put a job's checks on the board."""
    names = list(view.nodes)
    if len(names) > MOST_ROWS:
        names = sorted(names, key=lambda name: -_worst(view.checks.get(name, {})))[:MOST_ROWS]
    rows = tuple(_row(name, view) for name in names) if view.checks else ()
    board.show(tuple(check_name(check) for check in Check), rows)


def check_notes(view: JobView) -> Content:
    """Return what was found, the errors first, and how each node reaches the others."""
    levels = {level.value: level for level in Severity}
    found = [(levels.get(str(event.data.get("severity")), Severity.INFO), event) for event in view.findings]
    lines = [
        _finding(level, event)
        for wanted in (Severity.ERROR, Severity.WARNING, Severity.INFO)
        for level, event in found
        if level is wanted
    ]
    lines += _routes(view)
    if not lines and not view.checks:
        return Content.styled(_("The preflight has not said anything yet."), "$muted")
    return Content("\n").join(lines)


def _row(name: str, view: JobView) -> CheckRow:
    checks = view.checks.get(name, {})
    cells = (checks.get(check, _PENDING) for check in Check)
    shown = tuple(CheckCell(cell_text(cell), _COLOURS[cell.status]) for cell in cells)
    return CheckRow(line(name), view.nodes[name].plan.node_rank == 0, shown)


def _worst(cells: Mapping[Check, Cell]) -> int:
    return max((_ORDER.index(cell.status) for cell in cells.values()), default=0)


def _finding(level: Severity, event: Event) -> Content:
    word = words.severity(level)
    return Content.assemble(
        (f"{word.symbol} ", f"bold ${word.colour}"),
        (f"{line(str(event.data.get('code', '')))}: ", f"${word.colour}"),
        line(event.message),
        (words.hint(str(event.data.get("hint", ""))), "$muted"),
    )


def _routes(view: JobView) -> Iterable[Content]:
    master = next(iter(view.nodes), "")
    for name, checks in view.checks.items():
        if Check.MASTER in checks and checks[Check.MASTER].status not in (CheckStatus.NONE, CheckStatus.PENDING):
            ends = [f"→ {line(master)} {line(checks[Check.MASTER].text)}"]
            if Check.PEERS in checks and checks[Check.PEERS].text:
                ends.append(f"→ {line(checks[Check.PEERS].text)}")
            yield Content.styled(f"  {line(name)} " + "   ".join(ends), "$muted")
