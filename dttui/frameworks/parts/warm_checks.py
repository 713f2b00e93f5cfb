"""`run.warm_start`, by which ranks are forked where torch is imported already: what it costs, and what forbids it."""

from __future__ import annotations

from dttui.i18n import _
from dttui.spec.findings import Finding, error, info
from dttui.spec.models import Job, Run

_KEY = "run.warm_start"
MINUTES = 30
"""How long the agent keeps a process that no job asks for, `dtagent.attempts.warming.IDLE_S`."""


def check_forked(run: Run | None) -> list[Finding]:
    """Return what there is to it where torchrun starts the ranks."""
    if run is None or not run.warm_start:
        return []
    if run.prefix:
        message = _("run.warm_start cannot be had together with run.prefix: what is forked runs under no other program")
        return [error("warm-start-prefix", _KEY, message, _("Leave one of them out."))]
    message = _(
        "torchrun and the ranks are forked on each host from a process that keeps torch imported; it stays "
        "{minutes} minutes after the last launch and holds about 220 MB"
    ).format(minutes=MINUTES)
    return [info("warm-start", _KEY, message)]


def check_not_forked(job: Job, label: str) -> list[Finding]:
    """Return an error where a job asks for it whose framework is started without torchrun."""
    if job.run is None or not job.run.warm_start:
        return []
    message = _("run.warm_start is for torchrun, and {framework} is started without it").format(framework=label)
    return [error("run-mismatch", _KEY, message, _("Leave it out."))]


def check_not_in_any_program(run: Run | None) -> list[Finding]:
    """Return an error where a job asks for it that starts any program."""
    if run is None or not run.warm_start:
        return []
    message = _("run.warm_start is for torchrun, and the framework command starts any program")
    return [error("run-mismatch", _KEY, message, _("Leave it out, or choose pytorch-ddp."))]


def check_not_in_container(run: Run) -> list[Finding]:
    """Return an error where a job asks for it that runs in a container."""
    if not run.warm_start:
        return []
    message = _("run.warm_start cannot be had with run.container: what is forked runs outside of the image")
    return [error("container-warm-start", _KEY, message, _("Leave one of them out."))]
