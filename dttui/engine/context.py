"""What all attempts of a job have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dttui.engine.alerts.alert_watch import AlertWatch
from dttui.inventory.models import Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.planning.lineup import Lineup
from dttui.preflight.preflight import Replan
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
    earlier: tuple[str, ...] = ()
    """Job of each attempt before this job's first, where it goes on from another."""
    missing_secrets: Callable[[], Sequence[str]] = tuple
    """Looks for the values of secrets that are not known yet, and returns the names of those that still are not."""
    alerts: AlertWatch = field(default_factory=AlertWatch)
    replan_for: Callable[[Lineup], Replan] | None = None
    """Makes the same for who takes part once some were replaced; `None` where nobody can be."""

    def of_lineup(self, lineup: Lineup) -> JobContext:
        """Return the job with who takes part now."""
        return replace(self, replan=self.replan_for(lineup)) if self.replan_for is not None else self
