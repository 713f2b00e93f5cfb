"""Which of a preflight's checks are shown, and how wide: rows that the terminal and the screen both draw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dtagent.protocol.events import Event

from dttui.jobs.checks import Cell, Check, CheckStatus
from dttui.jobs.event_log import hint_of, message_of
from dttui.planning.merged_findings import merged
from dttui.spec.findings import Finding, Severity, errors_first

MIN_NAME = 8
MIN_COLUMN, MAX_COLUMN = 6, 9
"""Cells of a check, a blank included."""

Rows = Mapping[str, Mapping[Check, Cell]]
"""Node → its checks, in order of rank."""
_NONE = Cell(CheckStatus.NONE)


def shown_names(rows: Rows, most: int) -> list[str]:
    """Return the nodes that are shown, in order of rank; where there are more, those that need looking at most."""
    names = list(rows)
    if len(names) <= most:
        return names
    badness = {name: max((cell.status.badness for cell in row.values()), default=0) for name, row in rows.items()}
    return sorted(names, key=lambda name: -badness[name])[:most]


def board_widths(longest_name: int, width: int) -> tuple[int, int]:
    """Return the cells of a node's name and of a column, of a board that is so many cells wide."""
    longest = longest_name + 2  # With the mark of the master.
    column = min(max((width - longest) // len(Check), MIN_COLUMN), MAX_COLUMN)
    return min(longest, max(width - column * len(Check), MIN_NAME)), column


@dataclass(frozen=True)
class Route:
    """How one node reaches others, in a few words of a host's."""

    name: str
    to_master: str
    to_next: str
    """Empty where nothing is known."""


def routes(rows: Rows) -> Iterator[Route]:
    """Yield how nodes reach the master and the next one, once that is known; nothing where there is one node."""
    for name, row in rows.items() if len(rows) > 1 else ():
        master = row.get(Check.MASTER, _NONE)
        if master.text and master.status not in (CheckStatus.NONE, CheckStatus.PENDING):
            yield Route(name, master.text, row.get(Check.PEERS, _NONE).text)


def told_findings(events: Iterable[Event]) -> list[Finding]:
    """Return what events say was found, the errors first, what is the same on several nodes as one."""
    levels = {level.value: level for level in Severity}
    found = [
        Finding(
            code=str(event.data.get("code", "")),
            severity=levels.get(str(event.data.get("severity")), Severity.INFO),
            subject=str(event.data.get("subject", "")),
            message=message_of(event),
            hint=hint_of(event),
        )
        for event in events
    ]
    return merged(errors_first(dict.fromkeys(found)))
