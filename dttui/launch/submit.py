"""Submitting a job: write its directory, and leave it to a controller of its own."""

from __future__ import annotations

import os
import shutil
import time

from dttui import jobs, locations
from dttui.errors import UsageError
from dttui.files import write_atomic
from dttui.i18n import _, language
from dttui.inventory.models import Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.launch_file import LaunchFile
from dttui.launch.same_job import find_running
from dttui.launch.starting import SpareController, start_controller
from dttui.planning.models import Plan
from dttui.planning.submission import Submission
from dttui.spec import dump_job


def submit(
    submission: Submission, plan: Plan, *, expects_client: bool, spare: SpareController | None = None
) -> JobDirectory:
    """Write the job's directory and start its controller, which outlives this process.

    Args:
        submission: the job.
        plan: its plan, without errors.
        expects_client: whether a client that can ask a person is about to attach.
        spare: a controller that was started ahead.

    Raises:
        UsageError: the plan has errors, or the directory cannot be written.
    """
    if plan.errors:
        raise UsageError(plan.errors[0].message, plan.errors[0].hint)
    launch = LaunchFile(
        inventory=_chosen(submission, plan),
        base=submission.base,
        file=submission.file,
        language=language(),
        ignored=submission.ignored,
        asked_at=time.time(),
        is_queued=submission.is_queued,
        for_s=submission.for_s,
        keeps=submission.keeps,
        earlier=_attempts_of(jobs.find(submission.continues)) if submission.continues is not None else (),
    )
    directory = jobs.create(submission.job.name)
    lock: int | None = None
    try:
        lock = directory.claim()  # From the first, so that nobody takes the job for one whose controller has died.
        write_atomic(directory.document, submission.text or dump_job(submission.job))
        write_atomic(directory.plan, plan.model_dump_json(indent=2))
        write_atomic(directory.launch, launch.model_dump_json())
        if submission.continues is not None:
            _keep_plans(jobs.find(submission.continues), directory)
    except BaseException as fault:
        if lock is not None:
            os.close(lock)
        shutil.rmtree(directory.path, ignore_errors=True)
        if not isinstance(fault, OSError):
            raise
        raise locations.unwritable(directory.path, fault) from fault
    try:
        start_controller(directory, lock, launches=True, expects_client=expects_client, spare=spare)
    except OSError as fault:  # Whatever else comes, Ctrl-C say: a controller may have the job by then.
        shutil.rmtree(directory.path, ignore_errors=True)
        message = _("the controller of the job cannot be started: {reason}")
        raise UsageError(message.format(reason=fault.strerror or str(fault))) from fault
    return directory


def _attempts_of(directory: JobDirectory) -> tuple[str, ...]:
    """Return the job of each attempt that a job had, and those that it went on from itself."""
    earlier = directory.read_launch().earlier
    own = jobs.summarize(directory).attempts - len(earlier)
    return (*earlier, *[directory.job_id] * max(1, own))


def _keep_plans(before: JobDirectory, directory: JobDirectory) -> None:
    """Keep the plans of the attempts that a job goes on from: they tell where those have written."""
    for source in (before.path / "attempts").glob("*/plan.json"):
        if source.parent.name.isdigit():
            target = directory.bound_plan(int(source.parent.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def find_same(submission: Submission, plan: Plan) -> JobDirectory | None:
    """Return the job that was submitted so before and still runs, `None` where there is none."""
    named = _named(plan)
    if submission.job.cluster.candidates != "any":
        named |= {*plan.candidates}  # Else they are whatever others the inventory has.
    return find_running(submission.job, submission.inventory, submission.base, named)


def _named(plan: Plan) -> set[str]:
    """Return the environments that take part, or are to take the place of those."""
    return {node.name for node in plan.nodes} | {*plan.recovery.spares}


def _chosen(submission: Submission, plan: Plan) -> Inventory:
    """Return the inventory of the environments that the job uses, or may come to use."""
    chosen = _named(plan) | {*plan.candidates}
    environments = tuple(item for item in submission.inventory.environments if item.name in chosen)
    return submission.inventory.model_copy(update={"environments": environments})
