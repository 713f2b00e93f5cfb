"""What is to be said of a job that runs, from its events alone: a list of jobs reads no plans. Opens no file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dtagent.protocol.events import Event, EventKind, JobState, NodeStanding

from dttui.i18n import _
from dttui.jobs.event_log import STANDING
from dttui.spec.severity import Severity
from dttui.timestamps import elapsed_s
from dttui.words import listed

MOST_NAMES = 4
APART = "process-group"
"""Code of a finding on ranks that do not train together; one that only informs takes it back."""
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
        elif event.kind is EventKind.FINDING and event.data.get("code") in STANDING:
            trouble = event.message if event.data.get("severity") == Severity.WARNING else ""
        elif event.kind is EventKind.FINDING and event.data.get("code") == APART:
            apart = "" if event.data.get("severity") == Severity.INFO.value else event.message
    if state is JobState.RESTARTING:
        return trouble  # What was said of hosts is of the attempt before.
    silences = {name: elapsed_s(moment, now) for name, moment in heard_at.items()}
    return disturbance(tuple(gone), silences, trouble) or (apart if state is JobState.RUNNING else "")


def disturbance(gone: Sequence[str], silences: Mapping[str, float], trouble: str) -> str:
    """Return in words what keeps a job that goes on from being watched; empty where nothing does.

    Args:
        gone: nodes that answer, but have no agent any more.
        silences: nodes that have fallen silent → for how many seconds.
        trouble: what keeps the login node's disk from taking what is told.
    """
    if gone:
        text = _("the agent of {hosts} is gone: `dttui agents deploy {names}` brings it back")
        return text.format(hosts=listed(gone, MOST_NAMES), names=" ".join(gone[:MOST_NAMES]))
    if not silences:
        return trouble
    name, seconds = max(silences.items(), key=lambda item: item[1])
    if len(silences) == 1:
        return _("no word from {host} for {seconds:.0f} s").format(host=name, seconds=int(seconds))
    text = _("no word from {count} hosts; from {host} for {seconds:.0f} s")
    return text.format(count=len(silences), host=name, seconds=int(seconds))
