"""What all attempts of a job have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dtagent.protocol.events import EventKind, JobState

from dttui.engine.alerts.alert_watch import AlertWatch
from dttui.inventory.models import Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.planning.lineup import Lineup
from dttui.preflight.preflight import Replan
from dttui.timestamps import elapsed_s
from dttui.transport.base import Prompter, Transport


@dataclass(frozen=True)
class HostUse:
    """What hosts, and others who use them, are told of a job."""

    asked_at: float | None = None
    """Unix time at which the person asked for it."""
    for_s: float | None = None
    """For how long from now he means to need the hosts."""
    may_restart: bool = False
    """Whether another attempt may follow."""
    keeps: bool = False
    """Whether what an attempt leaves there is to stay until somebody says otherwise."""


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
    asked_at: float | None = None
    """Unix time at which the person asked for the job."""
    is_queued: bool = False
    """Whether it waits until its hosts have room."""
    for_s: float | None = None
    """For how long the person means to need the hosts, from the first attempt on."""
    missing_secrets: Callable[[], Sequence[str]] = tuple
    """Looks for the values of secrets that are not known yet, and returns the names of those that still are not."""
    alerts: AlertWatch = field(default_factory=AlertWatch)
    replan_for: Callable[[Lineup], Replan] | None = None
    """Makes the same for who takes part once some were replaced; `None` where nobody can be."""
    may_restart: bool = False
    """Whether another attempt may follow one that fails."""
    keeps: bool = False
    """Whether what its attempts leave on hosts is to stay until somebody says otherwise."""

    def host_use(self) -> HostUse:
        """Return what hosts are told of an attempt that begins now."""
        word = self.directory.keep_requests()
        keeps = self.keeps if word is None else word.keeps
        return HostUse(self.asked_at, self.rest_s, self.may_restart, keeps)

    @property
    def rest_s(self) -> float | None:
        """For how much longer hosts are needed, below 0 where that is over; `None` where nobody has said."""
        if self.for_s is None:
            return None
        states = (event for event in self.log.every() if event.kind is EventKind.JOB_STATE)
        began = next((event.time for event in states if event.data.get("state") == JobState.LAUNCHING.value), None)
        return self.for_s - (elapsed_s(began) if began is not None else 0.0)

    def of_lineup(self, lineup: Lineup) -> JobContext:
        """Return the job with who takes part now."""
        return replace(self, replan=self.replan_for(lineup)) if self.replan_for is not None else self
