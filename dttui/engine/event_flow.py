"""How many events one node may make: of those beyond, the newest of each kind is told later, and the rest counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dtagent.protocol.events import EventKind

from dttui.i18n import nmsg
from dttui.rpc.token_bucket import TokenBucket

EVENTS_A_MINUTE = 20
"""Of one subject, once there were many: a sound node has a handful in its whole life."""
EVENTS_BURST = 60
LEFT_OUT = "events-left-out"
"""Code of the finding that counts what was not told."""
_Write = Callable[[EventKind, str, dict[str, Any]], object]


@dataclass
class _Subject:
    """What is said of one node, or of another subject of findings."""

    allowance: TokenBucket = field(default_factory=lambda: TokenBucket(EVENTS_A_MINUTE / 60, EVENTS_BURST))
    held: dict[str, tuple[EventKind, str, dict[str, Any]]] = field(default_factory=dict)
    """Newest of each kind that is still to be told, in the order in which they came."""
    left_out: int = 0
    """Not told so far, and not counted in any event."""
    timer: asyncio.TimerHandle | None = None


class EventFlow:
    """Writes events within bounds: a host that changes its mind as fast as it likes fills no disk with that.

    Args:
        write: writes one.
    """

    def __init__(self, write: _Write) -> None:
        self._write = write
        self._subjects: dict[str, _Subject] = {}

    def offer(self, subject: str, name: str, kind: EventKind, message: str, fields: dict[str, Any]) -> None:
        """Write an event, or hold it until there is room for it.

        Args:
            subject: whose it is.
            name: a later one of that name takes its place while it is held.
            kind: of event.
            message: of the event.
            fields: of the event.
        """
        about = self._subjects.setdefault(subject, _Subject())
        if not about.held and about.allowance.takes(1):
            self._write(kind, message, fields)
            return
        if about.held.pop(name, None) is not None:
            about.left_out += 1
        about.held[name] = kind, message, fields
        self._release(subject)

    def flush(self) -> None:
        """Write all that is held, and what was left out."""
        for subject, about in self._subjects.items():
            if about.timer is not None:
                about.timer.cancel()
                about.timer = None
            held, about.held = list(about.held.values()), {}
            self._count(subject, about)
            for event in held:
                self._write(*event)

    def _release(self, subject: str) -> None:
        """Write what there is room for by now; come back for the rest, where there is a loop to do so."""
        about = self._subjects[subject]
        if about.left_out and about.held and about.allowance.takes(2):
            self._count(subject, about)
            self._write(*about.held.pop(next(iter(about.held))))
        while about.held and not about.left_out and about.allowance.takes(1):
            self._write(*about.held.pop(next(iter(about.held))))
        if about.held and about.timer is None:
            self._come_back(subject, about)

    def _come_back(self, subject: str, about: _Subject) -> None:
        def again() -> None:
            about.timer = None
            self._release(subject)

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # It is told with what comes next, or at the end.
        about.timer = loop.call_later(about.allowance.wait_s(2) + 0.1, again)

    def _count(self, subject: str, about: _Subject) -> None:
        if not about.left_out:
            return
        message = nmsg(
            "{subject}: {count} event was left out: it makes more than can be kept",
            "{subject}: {count} events were left out: it makes more than can be kept",
            about.left_out,
            subject=subject,
        )
        data = {"code": LEFT_OUT, "severity": "warning", "subject": subject, "hint": "", "left_out": about.left_out}
        about.left_out = 0
        self._write(EventKind.FINDING, message, {"data": data})
