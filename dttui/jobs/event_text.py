"""What an event of a job says, for whoever shows it: read once, drawn by the terminal and by the screen."""

from __future__ import annotations

from dataclasses import dataclass

from dtagent.protocol.events import Event, EventKind

from dttui.spec import Severity
from dttui.words import told_node_state, told_state

_GRADED = (
    EventKind.FINDING,
    EventKind.METRIC_ALERT,
    EventKind.ALERT,
    EventKind.HANG,
    EventKind.HEALTH,
    EventKind.STRAGGLER,
)
"""Events that say how bad what they tell is."""
_CODED = (EventKind.FINDING, EventKind.METRIC_ALERT)
"""Those that are known by a code."""


@dataclass(frozen=True)
class EventWords:
    """The parts of an event's line."""

    text: str
    """What was said; empty where the state says it all."""
    state: str = ""
    """The state that a job or a node is in from then on."""
    hint: str = ""
    """What to do."""
    code: str = ""
    """What a finding or an alert is known by, with its place in a file where it has one."""
    severity: Severity | None = None
    """How bad it is, of what says that."""


def event_words(event: Event) -> EventWords:
    """Return what an event says. Of what only another version knows, its own words."""
    hint = str(event.data.get("hint") or "")
    if event.kind in (EventKind.JOB_STATE, EventKind.NODE_STATE):
        said = event.data.get("state")
        state = told_state(said) if event.kind is EventKind.JOB_STATE else told_node_state(said)
        return EventWords("" if event.message == said else event.message, state, hint)
    severity = _severity(event.data.get("severity")) if event.kind in _GRADED else None
    code = str(event.data.get("code", "")) if event.kind in _CODED else ""
    if (
        event.kind is EventKind.FINDING
        and severity is not Severity.INFO
        and {"file", "line", "column"} <= event.data.keys()
    ):
        code += " {file}:{line}:{column}".format(**event.data)
    return EventWords(event.message, hint=hint, code=code, severity=severity)


def _severity(said: object) -> Severity:
    return Severity(said) if said in [item.value for item in Severity] else Severity.INFO
