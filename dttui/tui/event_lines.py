"""One event of a job as one line, and the log that it is about."""

from __future__ import annotations

from dtagent.protocol.events import Event, EventKind, JobState, NodeStanding
from textual.content import Content

from dttui.i18n import _
from dttui.jobs import EventWords, JobView, event_words
from dttui.tui import symbols
from dttui.tui.messages import LogChosen
from dttui.tui.remedy_keys import with_keys
from dttui.tui.rows import line


def event_line(event: Event) -> Content:
    """Return time, what it is about, and what was said."""
    told = event_words(event)
    symbol, colour = _mark(event, told)
    pieces: list[tuple[str, str] | str] = [(f"{symbols.time_of_day(event.time)}  ", "$muted"), (f"{symbol} ", colour)]
    if event.kind is EventKind.JOB_STATE:
        pieces.append((f"{line(told.state)}  ", f"bold {colour}"))
    if event.node and event.node not in told.text:
        pieces.append((f"{line(event.node)}  ", "bold"))
    if event.kind is EventKind.NODE_STATE:
        pieces.append((f"{line(told.state)}  ", colour))
    pieces.append(line(told.text))
    if told.hint:
        pieces.append((f"  → {with_keys(line(told.hint))}", "$muted"))
    return Content.assemble(*pieces)


def log_of_event(event: Event, view: JobView) -> LogChosen | str:
    """Return the log of what an event is about, at its time; of what has none, why there is none, in words."""
    node, rank, moment = event.node, event.rank, event.time
    first = event.data.get("first_failure")
    if node is None and isinstance(first, dict):
        node, rank, moment = first.get("node"), first.get("rank"), first.get("time") or event.time
    if not node:
        return _("This event is about no single node: there is no log to go to.")
    if node not in view.nodes:
        return _("{host} is no node of the job now: its log is not shown here.").format(host=line(node))
    stream = None
    if rank is not None:
        stream = f"{rank}.err" if first or event.kind is EventKind.RANK_FAILED else f"{rank}.out"
    attempt = event.attempt if event.attempt != view.attempt else None
    return LogChosen(node, stream, attempt, moment)


def _mark(event: Event, told: EventWords) -> tuple[str, str]:
    if event.kind in (EventKind.JOB_STATE, EventKind.OUTCOME):
        state = symbols.job_state(JobState(event.data.get("state")))
        return state.symbol, f"${state.colour}"
    if event.kind is EventKind.NODE_STATE:
        node = symbols.node_state(NodeStanding(event.data.get("state")))
        return node.symbol, f"${node.colour}"
    if told.severity is not None:
        severity = symbols.severity(told.severity)
        return severity.symbol, f"${severity.colour}"
    if event.kind is EventKind.RANK_FAILED:
        return "✗", "$state-failed"
    return "·", "$muted"
