"""Which hosts there is something left to do about once their job is over."""

from __future__ import annotations

from collections.abc import Iterable

from dtagent.protocol.events import Event, EventKind, NodeStanding

from dttui.spec.severity import Severity

LOG_REST = "log-rest"
"""Code of a finding on a node's logs: as a warning, that their rest was not fetched; else, that none is left there."""


def lost_nodes(events: Iterable[Event]) -> list[str]:
    """Return the nodes of a job that is over of which nobody knows what runs there."""
    return list(lost_in(events))


def lost_in(events: Iterable[Event]) -> dict[str, int]:
    """Return the same with the attempt in which each was lost."""
    found: dict[str, int] = {}
    for event in events:
        if event.kind is EventKind.NODE_STATE and event.node is not None:
            found.pop(event.node, None)
            if event.data.get("state") == NodeStanding.LOST:
                found[event.node] = event.attempt or 0
    return found


def unfetched_nodes(events: Iterable[Event]) -> list[str]:
    """Return the nodes of a job that is over of whose logs some could not be waited for at the end of an attempt."""
    return list(dict.fromkeys(name for name, _attempt in unfetched_in(events)))


def unfetched_in(events: Iterable[Event]) -> list[tuple[str, int]]:
    """Return the same, each with an attempt of which some are left there."""
    severities = {
        (str(event.data.get("subject")), event.attempt or 0): event.data.get("severity")
        for event in events
        if event.kind is EventKind.FINDING and event.data.get("code") == LOG_REST
    }
    return [found for found, severity in severities.items() if severity == Severity.WARNING]
