"""`apply`, `stop`, `plan`, `validate`: running a job without the screen, and looking before."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path

from dtagent.protocol.events import NodeStanding

from dttui import jobs
from dttui.cli.following import STARTED, Interrupts, follow_job, show_to_the_end, tell_detached
from dttui.cli.plan_text import plan_document, plan_text
from dttui.cli.printing import Printer, job_document, print_document, print_findings
from dttui.cli.prompting import TerminalPrompter
from dttui.cli.sources import read_submission
from dttui.compose.open_points import check_open_points
from dttui.errors import ExitCode
from dttui.i18n import _
from dttui.jobs import JobDirectory
from dttui.jobs.board import check_ignored
from dttui.jobs.following import JobFollower
from dttui.jobs.lost_nodes import lost_nodes
from dttui.jobs.view import JobView
from dttui.launch.control import stop_job
from dttui.launch.same_job import changed_files, find_earlier, one_submission_at_a_time
from dttui.launch.submit import find_same, make_local_plan, submit
from dttui.planning.models import Plan
from dttui.planning.submission import Submission
from dttui.sanitize import clean
from dttui.spec import DocumentError
from dttui.spec.findings import Severity
from dttui.spec.loader import parse_document
from dttui.spec.places import as_problem, with_places
from dttui.spec.yaml_reader import decode, read_bytes
from dttui.words import listed, state_name

MAX_NAMES = 5
LOOKS = 2
"""Times that a controller is asked to look at lost hosts."""


def apply(options: Namespace) -> Coroutine[object, object, int]:
    """Check a job here, where Ctrl-C just ends it; what is returned runs the job and gives its outcome."""
    file = options.apply if options.verb is None else options.file
    ignored = check_ignored(options.ignore)
    submission = replace(read_submission(options, file), ignored=ignored)
    plan = make_local_plan(submission)
    if plan.errors:
        raise DocumentError(as_problem(finding, file) for finding in plan.errors)
    return _run_job(submission, plan, options)


async def _run_job(submission: Submission, plan: Plan, options: Namespace) -> int:
    """Submit a job, or find it running, and follow it to its end; return its outcome."""
    printer = Printer("human" if options.detach else options.output)
    interrupts = Interrupts(printer, TerminalPrompter())
    interrupts.install()
    with one_submission_at_a_time():
        same = None if options.new else find_same(submission, plan)
        earlier = None
        if same is None and not options.new and submission.file is not None:
            earlier = find_earlier(submission.job, submission.base, submission.file)
        directory = same or submit(submission, plan, expects_client=True, spare=options.spare)
    options.interrupted = _("interrupted; `dttui status {id}` tells what became of the job").format(id=directory.job_id)
    printer.note(_("job {id}").format(id=directory.job_id))
    if earlier is not None:
        _tell_earlier(printer, *earlier)
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
    follower.catch_up()
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
        options.interrupted = _("interrupted; whether it is stopped tells `dttui status {id}`").format(
            id=directory.job_id
        )
        await _stop_to_the_end(follower, printer, force=options.force)
    printer.summary(follower.view, directory)
    return _tell_unstopped(follower.view, printer)


async def _stop_to_the_end(follower: JobFollower, printer: Printer, *, force: bool) -> None:
    """Have the job stopped, its lost hosts looked at again, and show that."""
    for _attempt in range(LOOKS):
        told = len(follower.view.events)
        await stop_job(follower.directory, force=force, prompter=TerminalPrompter())
        await show_to_the_end(follower, printer)
        # A controller that was about to go took the request, and has not looked.
        if len(follower.view.events) > told or not lost_nodes(follower.view.events):
            return


def _tell_unstopped(view: JobView, printer: Printer) -> int:
    """Name the hosts where something of the job may be running still; return the exit code that says so."""
    lost = lost_nodes(view.events)
    gone = [name for name in lost if view.nodes[name].is_agent_gone]
    unkillable = [name for name, node in view.nodes.items() if node.state is NodeStanding.UNKILLABLE]
    told = {
        _("not known to be stopped on {hosts}, which could not be reached"): [
            name for name in lost if name not in gone
        ],
        _("not known to be stopped on {hosts}: the agent is gone there"): gone,
        _("processes on {hosts} cannot be ended"): unkillable,
    }
    for message, hosts in told.items():
        if hosts:
            printer.note("✗ " + message.format(hosts=listed(hosts, MAX_NAMES)))
    if not any(told.values()):
        return ExitCode.OK
    if gone:
        printer.note("  → " + _("`dttui agents deploy {hosts}` brings it back.").format(hosts=" ".join(gone)))
    printer.note("  → " + _("`dttui stop {id}` looks there again.").format(id=view.job_id))
    return ExitCode.UNREACHABLE


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
    path, file = Path(options.file), options.file
    text = decode(read_bytes(path, file), file)
    loaded = parse_document(text, file)
    job = loaded.job
    needed = check_open_points(job, path.parent)
    mistakes = [finding for finding in needed if finding.severity is Severity.ERROR]
    if mistakes:
        raise DocumentError(as_problem(finding, file) for finding in with_places(mistakes, text, file))
    if options.output == "human":
        nodes = ", ".join(node.id for node in job.cluster.nodes)
        print(_("{file}: valid; job {name}, nodes: {nodes}").format(file=file, name=job.name, nodes=nodes or "–"))
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
    follower = JobFollower(directory)
    follower.catch_up()
    changed = changed_files(directory, follower.view.attempt, upload) if upload is not None else None
    if changed:
        shown = clean(listed(changed, MAX_NAMES))
        printer.note(_("⚠ it runs with other files than are here now: {names}").format(names=shown))
