"""`apply` and `plan`: running a job without the screen, and looking before."""

from __future__ import annotations

import asyncio
import sys
from argparse import Namespace
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path

from dttui.app import App
from dttui.cli.following import STARTED, Interrupts, follow_job, tell_detached
from dttui.cli.plan_text import plan_document, plan_text
from dttui.cli.printing import Printer, job_document, print_document, print_findings
from dttui.cli.prompting import TerminalPrompter
from dttui.cli.rank_logs import LAST_LINES, RankPrinter, check_ranks, chosen_ranks
from dttui.cli.sources import read_submission
from dttui.errors import ExitCode
from dttui.i18n import _
from dttui.jobs import JobDirectory, check_ignored
from dttui.planning import Plan, Submission
from dttui.sanitize import clean
from dttui.spec import DocumentError, Finding, Severity, as_problem
from dttui.words import listed

MAX_NAMES = 5


def apply(options: Namespace) -> Coroutine[object, object, int]:
    """Check a job here, where Ctrl-C just ends it; what is returned runs the job and gives its outcome."""
    file = options.apply if options.verb is None else options.file
    ignored = check_ignored(options.ignore)
    submission = replace(read_submission(options, file), ignored=ignored)
    return launch(submission, file, options, starts_another=options.new)


def launch(
    submission: Submission, file: str, options: Namespace, *, starts_another: bool
) -> Coroutine[object, object, int]:
    """Plan a job here; what is returned runs it and gives its outcome.

    Args:
        submission: the job.
        file: what errors call its file.
        options: the command line's.
        starts_another: also where the same job runs.

    Raises:
        DocumentError: the plan has errors.
    """
    options.unfinished = _("There was no job yet: nothing was started. Run the same command again.")
    submission = replace(submission, for_s=options.for_s, is_queued=options.queue, keeps=options.keeps)
    plan = App().plan(submission)
    if plan.errors:
        raise DocumentError(as_problem(finding, file) for finding in plan.errors)
    check_ranks(options.logs, {node.name: node.ranks for node in plan.nodes}, plan.job_name)
    return _run_job(submission, plan, options, starts_another)


async def _run_job(submission: Submission, plan: Plan, options: Namespace, starts_another: bool) -> int:
    """Submit a job, or find it running, and follow it to its end; return its outcome."""
    ranks = () if options.detach else chosen_ranks(options)
    printer = RankPrinter("human" if options.detach else options.output, ranks, is_raw=options.raw)
    interrupts = Interrupts(printer, TerminalPrompter())
    interrupts.install()
    found = App().submit(submission, plan, starts_another=starts_another, spare=options.spare)
    directory = found.directory
    options.interrupted = _("interrupted; `dttui status {id}` tells what became of the job").format(id=directory.job_id)
    options.unfinished = _("The job goes on: `dttui attach {id}` follows it, `dttui stop {id}` ends it.").format(
        id=directory.job_id
    )
    printer.note(_("job {id}").format(id=directory.job_id))
    if options.output == "human":  # While its controller is at work: it takes a while to read keys.
        found_here = await asyncio.to_thread(App().unattended, submission, plan)
        print_findings((item for item in found_here if _is_warning(item)), sys.stderr)
    if found.earlier is not None:
        _tell_earlier(printer, *found.earlier)
    if found.was_running:
        _tell_attached(printer, directory, submission.base / plan.upload if plan.upload is not None else None)
    follower = App().follow(directory, reads_samples=False)
    printer.follow(follower, last_lines=LAST_LINES if found.was_running else None)
    view = follower.view

    def has_started() -> bool:
        return options.detach and (view.state in STARTED or view.is_queued)

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
    return ExitCode.OK if has_started() else ExitCode.NOT_FINISHED


def _is_warning(finding: Finding) -> bool:
    return finding.severity is Severity.WARNING


def show_plan(options: Namespace) -> int:
    """Print what would run as far as the inventory knows; errors of the plan give exit code 2."""
    return print_plan(read_submission(options, options.file), options)


def print_plan(submission: Submission, options: Namespace) -> int:
    """Print the plan of a job; return the exit code."""
    plan = App().plan(submission).preview
    if not plan.errors and not plan.by_count:
        more = App().unattended(submission, plan)
        plan = plan.model_copy(update={"findings": (*plan.findings, *more)})
    if options.output == "human":
        print(plan_text(plan))
        print_findings(plan.findings)
        print(
            _("This is from the inventory: no host was asked. A launch asks them all, and starts nothing on an error.")
        )
    else:
        print_document(plan_document(plan), options.output)
    return ExitCode.USAGE if plan.errors else ExitCode.OK


def _tell_earlier(printer: Printer, directory: JobDirectory, keys: list[str]) -> None:
    """Say that another job runs from the same file, and in what that one was another."""
    if keys:
        text = _("⚠ {id} runs from this file as it was before (changed since: {keys}); this is another job")
    else:
        text = _("⚠ {id} runs from this file too; this is another job")
    shown = clean(listed(keys, MAX_NAMES))
    printer.note(text.format(id=directory.job_id, keys=shown))
    printer.note("  → " + _("`dttui stop {id}` ends that one").format(id=directory.job_id))


def _tell_attached(printer: Printer, directory: JobDirectory, upload: Path | None) -> None:
    """Say that a job runs already, and what of its files has changed since."""
    printer.note(_("this job runs already: attached to it. --new starts another one"))
    follower = App().follow(directory, reads_samples=False)
    follower.catch_up()
    changed = App().changed_files(directory, follower.view.attempt, upload) if upload is not None else None
    if changed:
        shown = clean(listed(changed, MAX_NAMES))
        printer.note(_("⚠ it runs with other files than are here now: {names}").format(names=shown))
