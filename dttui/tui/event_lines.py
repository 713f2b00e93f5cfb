"""One event of a job as one line."""

from __future__ import annotations

from dtagent.protocol.events import Event, EventKind, JobState, NodeStanding
from textual.content import Content

from dttui.spec import Severity
from dttui.tui import words
from dttui.tui.rows import line
from dttui.words import told_node_state, told_state


def event_line(event: Event) -> Content:
    """Return time, what it is about, and what was said."""
    symbol, colour = _mark(event)
    pieces: list[tuple[str, str] | str] = [(f"{words.time_of_day(event.time)}  ", "$muted"), (f"{symbol} ", colour)]
    if event.kind is EventKind.JOB_STATE:
        pieces.append((f"{line(told_state(event.data.get('state')))}  ", f"bold {colour}"))
    if event.node and event.node not in event.message:
        pieces.append((f"{line(event.node)}  ", "bold"))
    if event.kind is EventKind.NODE_STATE:
        pieces.append((f"{line(told_node_state(event.data.get('state')))}  ", colour))
    if event.message != event.data.get("state"):
        pieces.append(line(event.message))
    if event.data.get("hint"):
        pieces.append((f"  → {line(str(event.data['hint']))}", "$muted"))
    return Content.assemble(*pieces)


def _mark(event: Event) -> tuple[str, str]:
    if event.kind in (EventKind.JOB_STATE, EventKind.OUTCOME):
        state = words.job_state(JobState(event.data.get("state")))
        return state.symbol, f"${state.colour}"
    if event.kind is EventKind.NODE_STATE:
        node = words.node_state(NodeStanding(event.data.get("state")))
        return node.symbol, f"${node.colour}"
    if event.kind in (EventKind.FINDING, EventKind.METRIC_ALERT, EventKind.ALERT):
        known = {item.value for item in Severity}
        level = event.data.get("severity")
        severity = words.severity(Severity(level) if level in known else Severity.INFO)
        return severity.symbol, f"${severity.colour}"
    if event.kind is EventKind.RANK_FAILED:
        return "✗", "$state-failed"
    return "·", "$muted"
