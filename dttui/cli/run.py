"""`apply`, `stop`, `plan`, `validate`: running a job without the screen, and looking before."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from dttui.cli.printing import Printer, plan_text, print_findings
from dttui.cli.prompting import TerminalPrompter
from dttui.cli.sources import read_submission
from dttui.errors import ExitCode, NotFinishedError, UsageError
from dttui.i18n import _
from dttui.services import jobs
from dttui.services.control import ControllerClient
from dttui.services.follow import JobFollower
from dttui.services.jobs import JobDirectory
from dttui.services.launch import make_local_plan, submit
from dttui.spec import load_job

POLL_S = 0.1


async def apply(options: Namespace) -> int:
    """Run a job and follow it to its end; return its outcome."""
    file = options.apply if options.verb is None else options.file
    if options.dry_run:
        options.file = file
        return show_plan(options)
    submission = read_submission(options, file)
    plan = make_local_plan(submission)
    if plan.errors:
        raise _refusal(plan.errors[0].message, plan.errors[0].hint, len(plan.errors), options, plan)
    directory = submit(submission, plan, expects_client=not options.detach)
    printer = Printer(options.output)
    printer.note(_("job {id}").format(id=directory.job_id))
    if options.detach:
        print(json.dumps({"job_id": directory.job_id}) if options.output != "human" else directory.job_id)
        return ExitCode.OK
    return await _follow(directory, printer)


async def stop(options: Namespace) -> int:
    """Stop a job and wait for its end."""
    directory = jobs.find(options.job)
    follower = JobFollower(directory)
    follower.poll()
    printer = Printer(options.output)
    if follower.is_over:
        printer.note(
            _("job {id} is over already: {state}").format(id=directory.job_id, state=follower.view.state.value)
        )
        return ExitCode.OK
    client = await ControllerClient.connect(directory)
    try:
        await client.stop(force=options.force)
        printer.note(_("stopping {id}").format(id=directory.job_id))
        while not follower.is_over:
            if not directory.has_controller() and not follower.poll():
                raise NotFinishedError(_("the controller of {id} ended before the job").format(id=directory.job_id))
            for event in follower.poll():
                printer.event(event)
            await asyncio.sleep(POLL_S)
    finally:
        await client.close()
    printer.summary(follower.view, directory)
    return ExitCode.OK


def show_plan(options: Namespace) -> int:
    """Print what would run; errors of the plan give exit code 2."""
    plan = make_local_plan(read_submission(options, options.file))
    if options.output == "human":
        print(plan_text(plan))
        print_findings(plan.findings)
    else:
        print(plan.model_dump_json(indent=2 if options.output == "json" else None))
    return ExitCode.USAGE if plan.errors else ExitCode.OK


def validate(options: Namespace) -> int:
    """Check a job file by itself, without an inventory."""
    job = load_job(Path(options.file))
    if options.output == "human":
        nodes = ", ".join(node.id for node in job.cluster.nodes)
        print(
            _("{file}: valid; job {name}, nodes: {nodes}").format(file=options.file, name=job.name, nodes=nodes or "–")
        )
    else:
        print(json.dumps({"valid": True, "job": job.model_dump(mode="json", exclude_unset=True)}, ensure_ascii=False))
    return ExitCode.OK


@dataclass
class _Interrupts:
    """Counts what the person pressed: once is a graceful stop, twice forces it."""

    client: ControllerClient
    printer: Printer
    count: int = 0
    left: bool = False
    pending: asyncio.Task[None] | None = None

    def interrupt(self) -> None:
        self.count += 1
        force = self.count > 1
        self.printer.note(
            _("forcing the end")
            if force
            else _("stopping gracefully, so that ranks can write a checkpoint; press Ctrl-C again to force it")
        )
        self.pending = asyncio.ensure_future(self.client.stop(force=force))

    def leave(self) -> None:
        self.left = True


async def _follow(directory: JobDirectory, printer: Printer) -> int:
    client = await ControllerClient.connect(directory, TerminalPrompter(), wait=True)
    interrupts = _Interrupts(client, printer)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupts.interrupt)
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupts.leave)
    follower = JobFollower(directory)
    try:
        while not follower.is_over:
            alive = directory.has_controller()
            for event in follower.poll():
                printer.event(event)
            if interrupts.left:
                printer.note(_("leaving; the job goes on. `dttui stop {id}` ends it").format(id=directory.job_id))
                return ExitCode.NOT_FINISHED
            if not alive and not follower.is_over:
                raise NotFinishedError(
                    _("the controller of {id} ended before the job").format(id=directory.job_id),
                    _("See {path}.").format(path=directory.controller_log),
                )
            await asyncio.sleep(POLL_S)
    finally:
        with contextlib.suppress(OSError):
            await client.close()
    printer.summary(follower.view, directory)
    return follower.view.exit_code if follower.view.exit_code is not None else ExitCode.NOT_FINISHED


def _refusal(message: str, hint: str, count: int, options: Namespace, plan: object) -> UsageError:
    """Turn a plan's errors into one error, after all of them were printed."""
    findings = getattr(plan, "findings", ())
    if options.output == "human":
        print_findings(findings, stream=sys.stderr)
    if count > 1:
        message = _("{message} (and {count} more)").format(message=message, count=count - 1)
    return UsageError(message, hint)
