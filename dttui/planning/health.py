"""The job's own command that says whether it goes well on a host, as a plan carries it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from dttui.i18n import _
from dttui.spec.durations import parse_duration
from dttui.spec.findings import Finding, warning
from dttui.spec.models import Job, RecoveryAction

MOST_CHARACTERS = 60
"""Of the command, that are told."""


class HealthPolicy(BaseModel):
    """When the command is run, and what its failures come to."""

    # What a later version adds is read past: whatever wrote the plan, its job goes on.
    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    """The command as it is told."""
    every_s: float
    timeout_s: float
    failures: int
    start_period_s: float
    restarts: bool
    """Whether an unhealthy host ends the attempt."""


def health_of(job: Job) -> HealthPolicy | None:
    """Return what a job asks for; `None` where that is nothing."""
    asked = job.monitoring.health
    if asked is None:
        return None
    text = shlex.join(asked.command)
    return HealthPolicy(
        name=text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…",
        every_s=parse_duration(asked.every),
        timeout_s=parse_duration(asked.timeout),
        failures=asked.failures,
        start_period_s=parse_duration(asked.start_period),
        restarts=asked.action == "restart" and _may_restart(job),
    )


def check_health(job: Job) -> Iterator[Finding]:
    """Name a restart that nothing follows."""
    asked = job.monitoring.health
    if asked is not None and asked.action == "restart" and not _may_restart(job):
        subject = "monitoring.health.action"
        message = _("an unhealthy host is to restart the job, and recovery allows no other attempt: it is only told")
        hint = _("Write recovery.on_node_failure: restart and recovery.max_restarts, or leave the action out.")
        yield warning("recovery-in-vain", subject, message, hint, path=("monitoring", "health", "action"))


def _may_restart(job: Job) -> bool:
    return job.recovery.action is not RecoveryAction.STOP and job.recovery.max_restarts > 0
