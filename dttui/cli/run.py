"""`apply`, `stop`, `plan`, `validate`: running a job without the screen, and looking before."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from dtagent.protocol.events import JobState

from dttui.cli.printing import Printer, job_document, plan_document, plan_text, print_document, print_findings
from dttui.cli.prompting import TerminalPrompter
from dttui.cli.sources import read_submission
from dttui.errors import ExitCode, NotFinishedError
from dttui.i18n import _
from dttui.services import jobs
from dttui.services.control import ControllerClient, stop_job
from dttui.services.follow import JobFollower
from dttui.services.jobs import JobDirectory
from dttui.services.launch import make_local_plan, submit
from dttui.services.words import state_name
from dttui.spec import DocumentError, load_document
from dttui.spec.places import as_problem

POLL_S = 0.1
_STARTED = (JobState.RENDEZVOUS, JobState.RUNNING, JobState.STOPPING)
"""States in which processes of the job are there."""


async def apply(options: Namespace) -> int:
    """Run a job and follow it to its end; return its outcome."""
    file = options.apply if options.verb is None else options.file
    if options.dry_run:
        options.file = file
        return show_plan(options)
    submission = read_submission(options, file)
    plan = make_local_plan(submission)
    if plan.errors:
        raise DocumentError(as_problem(finding, file) for finding in plan.errors)
    printer = Printer("human" if options.detach else options.output)
    interrupts = _Interrupts(printer, TerminalPrompter())
    interrupts.install()
    directory = submit(submission, plan, expects_client=True)
    printer.note(_("job {id}").format(id=directory.job_id))
    follower = await _follow(directory, printer, interrupts, until_started=options.detach)
    view = follower.view
    if options.detach and options.output != "human":
        print_document(job_document(view, directory), options.output)
    elif follower.is_over:
        printer.summary(view, directory)
    elif options.detach:
        print(directory.job_id)
    if view.exit_code is not None:
        return view.exit_code
    return ExitCode.OK if options.detach and view.state in _STARTED else ExitCode.NOT_FINISHED


async def stop(options: Namespace) -> int:
    """Stop a job and wait for its end."""
    directory = jobs.find_to_stop(options.job)
    follower = JobFollower(directory)
    while follower.poll():
        pass
    printer = Printer(options.output)
    if follower.is_over:
        printer.note(
            _("job {id} is over already: {state}").format(id=directory.job_id, state=state_name(follower.view.state))
        )
        printer.event(follower.view.events[-1])
    else:
        printer.note(_("stopping {id}").format(id=directory.job_id))
        await stop_job(directory, force=options.force)
        await _show_to_the_end(follower, printer)
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
    if options.output == "human":
        nodes = ", ".join(node.id for node in job.cluster.nodes)
        print(
            _("{file}: valid; job {name}, nodes: {nodes}").format(file=options.file, name=job.name, nodes=nodes or "–")
        )
        print_findings(loaded.notes)
    else:
        document = {
            "valid": True,
            "dialect": loaded.dialect,
            "job": job.model_dump(mode="json", exclude_unset=True),
            "notes": [note.model_dump(mode="json") for note in loaded.notes],
        }
        print_document(document, options.output)
    return ExitCode.OK


class _Interrupts:
    """Counts what the person pressed, from before the job exists: once is a graceful stop, twice forces it."""

    def __init__(self, printer: Printer, prompter: TerminalPrompter) -> None:
        self.prompter = prompter
        self.left = False
        """Whether the terminal is gone, or this process was asked to go."""
        self._printer = printer
        self._client: ControllerClient | None = None
        self._count = 0
        self._sending: set[asyncio.Task[None]] = set()

    def install(self) -> None:
        """Take over this process's signals."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._leave)

    def attach(self, client: ControllerClient) -> None:
        """Send what was pressed so far, and from now on each as it comes."""
        self._client = client
        if self._count:
            self._send()

    async def finish(self) -> None:
        """Wait until everything is sent."""
        await asyncio.gather(*self._sending)

    def _interrupt(self) -> None:
        self._count += 1
        self._printer.note(
            _("forcing the end")
            if self._count > 1
            else _("stopping gracefully, so that ranks can write a checkpoint; press Ctrl-C again to force it")
        )
        if self._client is not None:
            self._send()
        self.prompter.decline()

    def _leave(self) -> None:
        self.left = True
        self.prompter.decline()

    def _send(self) -> None:
        if self._client is not None:
            task = asyncio.ensure_future(self._client.stop(force=self._count > 1))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)


async def _follow(
    directory: JobDirectory, printer: Printer, interrupts: _Interrupts, *, until_started: bool
) -> JobFollower:
    """Show the job until it is over, or started where that is enough, or the person has left."""
    client = await ControllerClient.connect(directory, interrupts.prompter, wait=True)
    interrupts.attach(client)
    follower = JobFollower(directory)
    try:
        await _show_to_the_end(
            follower,
            printer,
            until=lambda: interrupts.left or (until_started and follower.view.state in _STARTED),
        )
        await interrupts.finish()
    finally:
        with contextlib.suppress(OSError):
            await client.close()
    if interrupts.left and not follower.is_over:
        printer.note(_("leaving; the job goes on. `dttui stop {id}` ends it").format(id=directory.job_id))
    return follower


async def _show_to_the_end(
    follower: JobFollower, printer: Printer, *, until: Callable[[], bool] = lambda: False
) -> None:
    """Print events until the job is over, or `until` says so; NotFinishedError where the controller ended first."""
    directory = follower.directory
    while True:
        # Asked before reading: what a controller wrote last is read before it is missed.
        alive = directory.has_controller()
        new = follower.poll()
        for event in new:
            printer.event(event)
        if follower.is_over or until():
            return
        if not alive and not new:
            raise NotFinishedError(
                _("the controller of {id} ended before the job").format(id=directory.job_id),
                _("See {path}.").format(path=directory.controller_log),
            )
        await asyncio.sleep(0 if new else POLL_S)
