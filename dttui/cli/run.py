"""`apply`, `stop`, `plan`, `validate`: running a job without the screen, and looking before."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from dttui.cli.following import STARTED, Interrupts, follow_job, show_to_the_end, tell_detached
from dttui.cli.printing import Printer, job_document, plan_document, plan_text, print_document, print_findings
from dttui.cli.prompting import TerminalPrompter
from dttui.cli.sources import read_submission
from dttui.errors import ExitCode
from dttui.i18n import _
from dttui.sanitize import clean
from dttui.services import jobs
from dttui.services.compose.open_points import check_open_points
from dttui.services.controller.control import stop_job
from dttui.services.follow import JobFollower
from dttui.services.gang.lost_nodes import lost_nodes
from dttui.services.jobs import JobDirectory
from dttui.services.launch.same_job import changed_files, one_submission_at_a_time
from dttui.services.launch.submit import find_same, make_local_plan, submit
from dttui.services.preflight.board import check_ignored
from dttui.services.words import listed, state_name
from dttui.spec import DocumentError, load_document
from dttui.spec.places import as_problem

MAX_NAMES = 5


async def apply(options: Namespace) -> int:
    """Run a job and follow it to its end; return its outcome."""
    file = options.apply if options.verb is None else options.file
    if options.dry_run:
        options.file = file
        return show_plan(options)
    ignored = check_ignored(options.ignore)
    submission = replace(read_submission(options, file), ignored=ignored)
    plan = make_local_plan(submission)
    if plan.errors:
        raise DocumentError(as_problem(finding, file) for finding in plan.errors)
    printer = Printer("human" if options.detach else options.output)
    interrupts = Interrupts(printer, TerminalPrompter())
    interrupts.install()
    with one_submission_at_a_time():
        same = None if options.new else find_same(submission, plan)
        directory = same or submit(submission, plan, expects_client=True, spare=options.spare)
    printer.note(_("job {id}").format(id=directory.job_id))
    if same is not None:
        _tell_attached(printer, same, submission.base / plan.upload if plan.upload is not None else None)
    follower = JobFollower(directory)
    view = follower.view
    has_started = (lambda: view.state in STARTED) if options.detach else (lambda: False)
    await follow_job(follower, printer, interrupts, until=has_started)
    if options.detach and not follower.is_over:
        await tell_detached(directory, printer)
    if options.detach and options.output != "human":
        print_document(job_document(view, directory), options.output)
    elif follower.is_over:
        printer.summary(view, directory)
    elif options.detach:
        print(directory.job_id)
    if view.exit_code is not None:
        return view.exit_code
    return ExitCode.OK if options.detach and view.state in STARTED else ExitCode.NOT_FINISHED


async def stop(options: Namespace) -> int:
    """Stop a job and wait for its end."""
    directory = jobs.find_open(options.job, "stop")
    follower = JobFollower(directory)
    while follower.poll():
        pass
    printer = Printer(options.output)
    if follower.is_over:
        printer.note(
            _("job {id} is over already: {state}").format(id=directory.job_id, state=state_name(follower.view.state))
        )
        if not lost_nodes(follower.view.events):
            printer.event(follower.view.events[-1])
    else:
        printer.note(_("stopping {id}").format(id=directory.job_id))
    if not follower.is_over or lost_nodes(follower.view.events):
        await stop_job(directory, force=options.force, prompter=TerminalPrompter())
        await show_to_the_end(follower, printer)
    printer.summary(follower.view, directory)
    return ExitCode.OK


def show_plan(options: Namespace) -> int:
    """Print what would run as far as the inventory knows; errors of the plan give exit code 2."""
    plan = make_local_plan(read_submission(options, options.file))
    if options.output == "human":
        print(plan_text(plan))
        print_findings(plan.findings)
        print(
            _("This is from the inventory: no host was asked. A launch asks them all, and starts nothing on an error.")
        )
    else:
        print_document(plan_document(plan), options.output)
    return ExitCode.USAGE if plan.errors else ExitCode.OK


def validate(options: Namespace) -> int:
    """Check a job file by itself, without an inventory."""
    loaded = load_document(Path(options.file))
    job = loaded.job
    needed = check_open_points(job, Path(options.file).parent)
    if options.output == "human":
        nodes = ", ".join(node.id for node in job.cluster.nodes)
        print(
            _("{file}: valid; job {name}, nodes: {nodes}").format(file=options.file, name=job.name, nodes=nodes or "–")
        )
        print_findings(loaded.notes)
        if needed:
            print(_("`dttui plan` will ask for more:"))
            print_findings(needed)
    else:
        document = {
            "valid": True,
            "needed": [finding.model_dump(mode="json") for finding in needed],
            "dialect": loaded.dialect,
            "job": job.model_dump(mode="json", exclude_unset=True),
            "notes": [note.model_dump(mode="json") for note in loaded.notes],
        }
        print_document(document, options.output)
    return ExitCode.OK


def _tell_attached(printer: Printer, directory: JobDirectory, upload: Path | None) -> None:
    """Say that a job runs already, and what of its files has changed since."""
    printer.note(_("this job runs already: attached to it. --new starts another one"))
    follower = JobFollower(directory)
    while follower.poll():
        pass
    changed = changed_files(directory, follower.view.attempt, upload) if upload is not None else None
    if changed:
        shown = clean(listed(changed, MAX_NAMES))
        printer.note(_("⚠ it runs with other files than are here now: {names}").format(names=shown))
