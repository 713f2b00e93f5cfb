"""Submitting a job: check what can be checked here, write its directory, and leave it to a controller of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from dtagent.protocol.telemetry import HostFacts

from dttui.errors import UsageError
from dttui.i18n import _, language
from dttui.inventory.models import Inventory
from dttui.planning.models import Finding, Plan, Severity
from dttui.planning.planner import plan as make_plan
from dttui.services import jobs
from dttui.services.jobs import JobDirectory
from dttui.services.upload import list_upload
from dttui.spec import dump_job
from dttui.spec.models import Job


@dataclass(frozen=True)
class Submission:
    """A job to launch: what `--apply` and the TUI hand over alike."""

    job: Job
    inventory: Inventory
    base: Path
    """Directory that the job's relative paths start from: that of its file."""
    text: str | None = None
    """The job file as written, comments and all; made from the job where there is none."""


def make_local_plan(submission: Submission, facts: dict[str, HostFacts] | None = None) -> Plan:
    """Plan the job and check what lies on this machine: the directory to send, the script in it, the secrets."""
    plan = make_plan(submission.job, submission.inventory, facts or {})
    found = list(plan.findings)
    if plan.upload is not None:
        found.extend(_check_upload(submission, submission.base / plan.upload))
    for name in plan.secrets:
        if name not in os.environ:
            found.append(
                Finding(
                    code="secret-missing",
                    severity=Severity.ERROR,
                    subject="run.secrets",
                    message=_("the environment variable {name} is not set").format(name=name),
                    hint=_("Export it before starting dttui."),
                )
            )
    return plan.model_copy(update={"findings": tuple(found)})


def submit(submission: Submission, plan: Plan, *, expects_client: bool) -> JobDirectory:
    """Write the job's directory and start its controller, which outlives this process.

    Args:
        submission: the job.
        plan: its plan, without errors.
        expects_client: whether a client that can ask a person is about to attach.

    Raises:
        UsageError: the plan has errors, or the directory cannot be written.
    """
    if plan.errors:
        raise UsageError(plan.errors[0].message, plan.errors[0].hint)
    directory = jobs.create(submission.job.name)
    chosen = {node.name for node in plan.nodes}
    inventory = submission.inventory.model_copy(
        update={"environments": tuple(item for item in submission.inventory.environments if item.key in chosen)}
    )
    directory.document.write_text(submission.text or dump_job(submission.job), encoding="utf-8")
    directory.plan.write_text(plan.model_dump_json(indent=2), encoding="utf-8")
    launch = {"inventory": inventory.model_dump(mode="json"), "base": str(submission.base), "language": language()}
    directory.launch.write_text(json.dumps(launch, ensure_ascii=False), encoding="utf-8")
    for path in (directory.document, directory.plan, directory.launch):
        path.chmod(0o600)
    start_controller(directory, expects_client=expects_client)
    return directory


def start_controller(directory: JobDirectory, *, expects_client: bool) -> None:
    """Start the controller process of a job, detached from this terminal and session."""
    options = ["--expects-client"] if expects_client else []
    with directory.controller_log.open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "dttui.services.controller", str(directory.path), *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )


def _check_upload(submission: Submission, directory: Path) -> list[Finding]:
    def error(code: str, subject: str, message: str, hint: str = "") -> Finding:
        return Finding(code=code, severity=Severity.ERROR, subject=subject, message=message, hint=hint)

    run = submission.job.run
    if not directory.is_dir():
        return [error("workdir-missing", "run.workdir", _("there is no directory {path} here").format(path=directory))]
    if run is not None and run.script is not None and not (directory / run.script).is_file():
        message = _("there is no script {script} in {path}").format(script=run.script, path=directory)
        return [error("script-missing", "run.script", message, _("Write the path relative to workdir."))]
    try:
        list_upload(directory)
    except UsageError as refusal:
        return [error("workdir-too-large", "run.workdir", refusal.message, refusal.hint)]
    return []
