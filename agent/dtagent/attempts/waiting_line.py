"""The line of those who wait for GPUs of a host, as this user's agent keeps and sees it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass

from dtagent.protocol.telemetry import GpuWait
from dtagent.system import gpu_line, users
from dtagent.system.gpu_line import GpuLine, Ticket, Waiter

PLACE_S = 15.0
"""How long a place is kept from the last word of its job's controller on, which keeps the time of asking itself."""


@dataclass
class _Place:
    ticket: Ticket
    descriptor: int | None
    heard: float
    """Monotonic time."""


class WaitingLine:
    """Who waits here: jobs of this user that this agent hears of, and what other users have told. For any threads.

    Args:
        line: of all users; `None` where nobody else uses the GPUs.
    """

    def __init__(self, line: GpuLine | None = None) -> None:
        self._line = line
        self._places: dict[str, _Place] = {}
        self._lock = threading.Lock()

    def keep(self, ticket: Ticket) -> None:
        """Give a job a place, or keep the one that it has."""
        with self._lock:
            place = self._places.get(ticket.job_id)
            if place is not None and place.descriptor is not None and not gpu_line.is_there(place.descriptor):
                os.close(place.descriptor)
                place = None
            if place is None:
                place = self._places[ticket.job_id] = _Place(ticket, None, 0.0)
            if place.descriptor is None and self._line is not None and ticket.gpus:
                # Where no file can be had now, jobs of this user keep their order all the same.
                with contextlib.suppress(OSError):
                    place.descriptor = self._line.stand(ticket)
            elif place.ticket != ticket and place.descriptor is not None:
                gpu_line.tell(place.descriptor, ticket)
            place.ticket, place.heard = ticket, time.monotonic()

    def leave(self, job_id: str) -> None:
        """Take a job out of the line."""
        with self._lock:
            self._remove(job_id)

    def before(self, asked_s: float, job_id: str) -> list[Waiter]:
        """Return who is to get GPUs before a job, the first one first."""
        turn = (asked_s, job_id, os.geteuid())
        return [
            waiter
            for waiter in self.waiters()
            if waiter.turn < turn and waiter.ticket.job_id != job_id and not waiter.ticket.stands_aside
        ]

    def waiters(self) -> list[Waiter]:
        """Return all who wait, the first one first."""
        others = self._line.waiters() if self._line is not None else []
        with self._lock:
            for job_id, place in list(self._places.items()):
                if time.monotonic() - place.heard > PLACE_S:
                    self._remove(job_id)
            uid = os.geteuid()
            own = [Waiter(uid, place.ticket) for place in self._places.values()]
            known = {waiter.ticket.job_id for waiter in own}
        others = [waiter for waiter in others if waiter.uid != uid or waiter.ticket.job_id not in known]
        return sorted([*own, *others], key=lambda waiter: waiter.turn)

    def _remove(self, job_id: str) -> None:
        place = self._places.pop(job_id, None)
        if place is not None and place.descriptor is not None:
            gpu_line.leave(place.descriptor)


def told(waiter: Waiter) -> GpuWait:
    """Return what clients are told of one who waits. It may ask a directory service."""
    ticket = waiter.ticket
    return GpuWait(
        users.name_of(waiter.uid),
        ticket.job_id,
        ticket.asked_s,
        ticket.gpus,
        ticket.simulated or None,
        ticket.stands_aside,
    )
