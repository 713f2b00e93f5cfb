"""From the checks of a preflight to what the run screen shows of them. What came from a host is made clean here."""

from __future__ import annotations

from collections.abc import Iterable

from dtagent.protocol.events import EventKind, JobState
from textual.content import Content

from dttui.i18n import _
from dttui.jobs import (
    Cell,
    Check,
    CheckStatus,
    JobView,
    cell_text,
    cell_words,
    check_name,
    check_word,
    routes,
    shown_names,
    told_findings,
)
from dttui.spec import Finding
from dttui.timestamps import elapsed_s
from dttui.tui import symbols
from dttui.tui.rows import line
from dttui.tui.widgets.check_board import CheckBoard, CheckCell, CheckRow
from dttui.words import listed

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
MOST_NAMES = 3
"""Hosts that a line names."""
_BEGINNING = (JobState.PREFLIGHT, JobState.LAUNCHING, JobState.RENDEZVOUS)
_PENDING = Cell(CheckStatus.PENDING)


def show_checks(board: CheckBoard, view: JobView) -> None:
    """Put a job's checks on the board."""
    names = shown_names({name: view.checks.get(name, {}) for name in view.nodes}, MOST_ROWS)
    rows = tuple(_row(name, view) for name in names) if view.checks else ()
    board.show(tuple((check_name(check), check_word(check)) for check in Check), rows)


def check_notes(view: JobView) -> Content:
    """Return what was found, the errors first, and how each node reaches the others."""
    lines = [_finding(item) for item in told_findings(view.findings)]
    lines += _routes(view)
    if not lines and not view.checks:
        return Content.styled(_("The preflight has not said anything yet."), "$muted")
    return Content("\n").join(lines)


def so_far(view: JobView, now: float) -> str:
    """Return for how long a job that has not begun to train is in its state, and who is waited for; else nothing."""
    if view.state not in _BEGINNING:
        return ""
    since = next((event.time for event in reversed(view.events) if event.kind is EventKind.JOB_STATE), None)
    told = [_("for {span}").format(span=symbols.duration(elapsed_s(since, now)))] if since is not None else []
    return " · ".join([*told, waited_for(view)] if view.state is JobState.PREFLIGHT else told).rstrip(" ·")


def waited_for(view: JobView) -> str:
    """Return which hosts have not answered a check yet, and of a single one which; empty where all have."""
    pending = {
        name: [check for check in Check if view.checks.get(name, {}).get(check, _PENDING).status is CheckStatus.PENDING]
        for name in view.nodes
    }
    # To reach its peers each waits for the slowest.
    names = [name for name, checks in pending.items() if checks not in ([], [Check.PEERS])]
    names = names or [name for name, checks in pending.items() if checks]
    if not names:
        return ""
    who = listed([line(name) for name in names], MOST_NAMES)
    if len(names) == 1:
        who = f"{who} ({', '.join(check_word(check) for check in pending[names[0]])})"
    return _("waiting for {who}").format(who=who)


def _row(name: str, view: JobView) -> CheckRow:
    checks = view.checks.get(name, {})
    cells = (checks.get(check, _PENDING) for check in Check)
    shown = tuple(CheckCell(cell_text(cell), cell_words(cell), _COLOURS[cell.status]) for cell in cells)
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
