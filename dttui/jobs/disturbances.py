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
HANG = "hang"
"""Cause of an attempt that was ended since it hung."""
KINDS = (EventKind.NODE_STATE, EventKind.FINDING, EventKind.HANG, EventKind.HEALTH, EventKind.STRAGGLER)
"""Events that matter here."""


def trouble_of(state: JobState, events: Iterable[Event], now: float) -> str:
    """Return what `JobView.headline` would say instead of the job's own words at Unix time `now`; empty where nothing.

    Args:
        state: the job's, which is not over.
        events: those of `KINDS`, in order.
        now: the present.
    """
    seen = _Disturbances()
    for event in events:
        seen.see(event)
    if state is JobState.RESTARTING:
        return seen.trouble  # What was said of hosts is of the attempt before.
    silences = {name: elapsed_s(moment, now) for name, moment in seen.heard_at.items()}
    told = disturbance(tuple(seen.gone), silences, seen.trouble)
    running = seen.hang or unhealthy_text([*filter(None, seen.unhealthy.values())]) or seen.apart or seen.straggler
    return told or (running if state is JobState.RUNNING else "")


class _Disturbances:
    """What is wrong after some events of a job: what was said last, unless it was taken back."""

    def __init__(self) -> None:
        self.heard_at: dict[str, float] = {}
        """Silent node → Unix time of its last word."""
        self.gone: dict[str, None] = {}
        """Nodes whose agent has gone, in order."""
        self.unhealthy: dict[str, str] = {}
        """Node → what was said of its health last; empty where it is well again."""
        self.trouble = self.apart = self.hang = self.straggler = ""
        self._attempt = 0

    def see(self, event: Event) -> None:
        """Take in one event of `KINDS`."""
        if event.attempt is not None and event.attempt > self._attempt:
            self._attempt, self.hang, self.straggler = event.attempt, "", ""
            self.unhealthy.clear()
        if event.kind is EventKind.NODE_STATE and event.node is not None:
            self._see_node(event.node, event)
        elif event.kind is EventKind.FINDING and event.data.get("code") in STANDING:
            self.trouble = event.message if event.data.get("severity") == Severity.WARNING else ""
        elif event.kind is EventKind.FINDING and event.data.get("code") == APART:
            self.apart = _unless_taken_back(event)
        elif event.kind is EventKind.HANG:
            self.hang = _unless_taken_back(event)
        elif event.kind is EventKind.STRAGGLER:
            self.straggler = _unless_taken_back(event)
        elif event.kind is EventKind.HEALTH and event.node is not None:
            self.unhealthy.pop(event.node, None)
            self.unhealthy[event.node] = _unless_taken_back(event)

    def _see_node(self, name: str, event: Event) -> None:
        said = event.data.get("state")
        self.heard_at.pop(name, None)
        self.gone.pop(name, None)
        if said == NodeStanding.AGENT_GONE.value:
            self.gone[name] = None
        elif said == NodeStanding.UNKNOWN.value:
            self.heard_at[name] = event.data.get("heard_at", event.time)


def _unless_taken_back(event: Event) -> str:
    """Return what an event says is wrong; empty where it says that it is so no more."""
    return "" if event.data.get("severity") == Severity.INFO.value else event.message


def unhealthy_text(said: Sequence[str]) -> str:
    """Return in a line which hosts are unhealthy; empty where none is.

    Args:
        said: what was said of each.
    """
    if len(said) < 2:
        return said[0] if said else ""
    return _("{message}; {count} hosts are unhealthy").format(message=said[0], count=len(said))


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
