"""What follows a job's events as they are written: its alerts, and the program that it wants to be run.

Only what a controller writes itself is passed on; what another one wrote before, or a client reads again, is not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from dtagent.protocol.events import Event, EventKind

from dttui.engine.alerts.alert_watch import AlertWatch
from dttui.engine.alerts.event_hook import EventHook
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.spec.models import Job

LOG = logging.getLogger("dttui.controller")


class WatchedLog(EventLog):
    """An event log that others hear of, after an event is on the disk."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.listeners: list[Callable[[Event], None]] = []

    def add(self, kind: EventKind, message: str, **fields: object) -> Event:
        """Write one event, let the others hear of it, and return it."""
        event = super().add(kind, message, **fields)
        for listen in self.listeners:
            try:
                listen(event)
            except Exception:  # The top of what the job must not notice.
                LOG.exception("an event could not be passed on")
        return event


class EventWatch:
    """The alerts and the `on_event` of one job, from now on.

    Args:
        log: what is listened to, and where alerts are written.
        job: what it says under `monitoring`.
        directory: the job's.
        base: directory of the job file.
        secrets: values that neither events nor the program may hold.
    """

    def __init__(
        self, log: WatchedLog, job: Job, directory: JobDirectory, base: Path, secrets: Sequence[str] = ()
    ) -> None:
        monitoring = job.monitoring
        self.alerts = AlertWatch(monitoring.alerts, log.add, secrets)
        for event in directory.read_events() if monitoring.alerts else ():
            self.alerts.recall(event)
        self._hook: EventHook | None = None
        if monitoring.on_event is not None:
            about = {"job_id": directory.job_id, "job_name": job.name}
            self._hook = EventHook(monitoring.on_event, monitoring.on_event_kinds, base, about, log.add, secrets)
            log.listeners.append(self._hook.see_event)
        # After the program's, which hears of an event before the alert that it raises.
        log.listeners.append(self.alerts.see_event)

    async def close(self) -> None:
        """Let the program finish what it was started for, within its own deadline."""
        self.alerts.close()
        if self._hook is not None:
            await self._hook.close()
