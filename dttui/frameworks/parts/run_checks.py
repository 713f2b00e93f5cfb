"""What in `run` of a job does not go with a framework, whichever program starts its ranks."""

from __future__ import annotations

from collections.abc import Collection

from dttui.frameworks.parts.warm_checks import check_not_forked
from dttui.i18n import _
from dttui.spec.findings import Finding, error
from dttui.spec.models import Job


def check_program(job: Job, label: str) -> list[Finding]:
    """Return what in `run` does not go with a framework that starts a script or module on every rank."""
    if job.run is not None and job.run.command is not None:
        message = _("{framework} starts a script or a module, not a command").format(framework=label)
        hint = _("Give run.script or run.module, or choose the framework command.")
        return [error("run-mismatch", "run.command", message, hint)]
    if job.run is not None and job.run.per == "node":
        message = _("{framework} starts the ranks itself").format(framework=label)
        hint = _("Leave run.per out; or choose the framework command for a program that starts its own.")
        return [error("run-mismatch", "run.per", message, hint)]
    return []


def check_cold_run(job: Job, label: str) -> list[Finding]:
    """Return what in `run` does not go with a framework that is started by another program than torchrun."""
    return check_program(job, label) or check_not_forked(job, label)


def check_places(job: Job, names: Collection[str]) -> list[Finding]:
    """Return an error for each variable of `run.env` by which a framework tells its ranks where they stand."""
    message = _("{name} is set by dttui, for each rank its own")
    return [
        error(
            "run-mismatch", f"run.env.{name}", message.format(name=name), _("Leave it out."), path=("run", "env", name)
        )
        for name in sorted(names)
        if job.run is not None and name in job.run.env
    ]
