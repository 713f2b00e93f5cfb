"""Which hosts were lost with a job that is over."""

from __future__ import annotations

from collections.abc import Iterable

from dtagent.protocol.events import Event, EventKind, NodeStanding


def lost_nodes(events: Iterable[Event]) -> list[str]:
    """Return the nodes of a job that is over of which nobody knows what runs there."""
    states = {event.node: event.data.get("state") for event in events if event.kind is EventKind.NODE_STATE}
    return [name for name, state in states.items() if name is not None and state == NodeStanding.LOST]
