"""What is to be said of a job that runs, from its events alone: a list of jobs reads no plans. Opens no file."""

from __future__ import annotations

from collections.abc import Iterable

from dtagent.protocol.events import Event, EventKind, JobState, NodeStanding

from dttui.jobs.event_log import NO_ROOM
from dttui.jobs.view import APART, disturbance
from dttui.spec.severity import Severity
from dttui.timestamps import elapsed_s

KINDS = (EventKind.NODE_STATE, EventKind.FINDING)
"""Events that matter here."""


def trouble_of(state: JobState, events: Iterable[Event], now: float) -> str:
    """Return what `JobView.headline` would say instead of the job's own words at Unix time `now`; empty where nothing.

    Args:
        state: the job's, which is not over.
        events: those of `KINDS`, in order.
        now: the present.
    """
    heard_at: dict[str, float] = {}
    gone: dict[str, None] = {}
    trouble = apart = ""
    for event in events:
        if event.kind is EventKind.NODE_STATE and event.node is not None:
            said = event.data.get("state")
            heard_at.pop(event.node, None)
            gone.pop(event.node, None)
            if said == NodeStanding.AGENT_GONE.value:
                gone[event.node] = None
            elif said == NodeStanding.UNKNOWN.value:
                heard_at[event.node] = event.data.get("heard_at", event.time)
        elif event.kind is EventKind.FINDING and event.data.get("code") == NO_ROOM:
            trouble = event.message if event.data.get("severity") == Severity.WARNING else ""
        elif event.kind is EventKind.FINDING and event.data.get("code") == APART:
            apart = "" if event.data.get("severity") == Severity.INFO.value else event.message
    silences = {name: elapsed_s(moment, now) for name, moment in heard_at.items()}
    return disturbance(tuple(gone), silences, trouble) or (apart if state is JobState.RUNNING else "")
