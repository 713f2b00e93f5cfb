"""What all attempts of a job have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dttui.engine.alerts.matching import AlertWatch
from dttui.inventory.models import Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.preflight.run import Replan
from dttui.transport.base import Prompter, Transport


@dataclass(frozen=True)
class JobContext:
    """A job, where it is told, and the ways to its hosts."""

    directory: JobDirectory
    log: EventLog
    transport: Transport
    prompter: Prompter
    """Who is asked for what it takes to log in."""
    inventory: Inventory
    replan: Replan
    base: Path
    """What the plan's `upload` is relative to."""
    secrets: Mapping[str, str]
    """Name → value, as far as it is known here: no event may hold one."""
    ignored: frozenset[str] = frozenset()
    """Codes of findings of the preflight that do not forbid the launch."""
    alerts: AlertWatch = field(default_factory=AlertWatch)
