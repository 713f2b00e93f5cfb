"""`attach`: following a job that another terminal started, or whose controller has died. Leaving never stops it."""

from __future__ import annotations

import asyncio
import sys
from argparse import Namespace
from collections.abc import Coroutine

from dtagent.protocol.events import Event, EventKind

from dttui import jobs
from dttui.app import App
from dttui.cli.following import Interrupts, follow_job
from dttui.cli.printing import one_line, print_document, print_rows
from dttui.cli.prompting import TerminalPrompter
from dttui.cli.rank_logs import LAST_LINES, RankPrinter, check_ranks, chosen_ranks
from dttui.cli.showing import in_order, shown_to_the_end
from dttui.errors import ExitCode, NotFinishedError
from dttui.i18n import _
from dttui.jobs import JobDirectory
from dttui.words import state_name

LAST_EVENTS = 12
"""Of what was told before, so many are shown to a person."""


def recent(events: list[Event]) -> list[Event]:
    """Return the newest events; of findings told together all, since the same of several nodes is one line."""
    start = max(0, len(events) - LAST_EVENTS)
    while start > 0 and events[start].kind is events[start - 1].kind is EventKind.FINDING:
        start -= 1
    return events[start:]


def attach(options: Namespace) -> int | Coroutine[object, object, int]:
    """Follow a job to its end, or bring back the controllers of all jobs."""
    if options.all:
        return _bring_back_all(options)
    return _tell_dry(options) if options.dry_run else _attach(options)


def _bring_back_all(options: Namespace) -> int:
    """Start a controller for each job that goes on and has none, as after a restart; follow none of them."""
    found: dict[str, bool] = {}
    worst = ExitCode.OK
    for summary in jobs.list_jobs():
        directory = jobs.find(summary.job_id)
        if not directory.is_over():
            try:
                found[summary.job_id] = App().would_revive(directory) if options.dry_run else App().revive(directory)
            except NotFinishedError as error:  # The others are to be followed all the same.
                worst = error.exit_code
                sys.stderr.write(one_line(f"{summary.job_id}: {error.message}") + "\n")
    if options.output != "human":
        key, dry = ("would_be_brought_back", {"dry_run": True}) if options.dry_run else ("was_brought_back", {})
        print_rows([{"job_id": job, key: is_new, **dry} for job, is_new in found.items()], options.output)
        return worst
    for job, is_new in found.items():
        told = _("{id}: followed again") if is_new else _what_stays(jobs.find(job))
        if is_new and options.dry_run:
            told = _("{id}: would be followed again")
        print(told.format(id=job))
    if not found:
        print(_("no job goes on"))
    return worst


def _what_stays(directory: JobDirectory) -> str:
    """Return what is told of a job that goes on and gets no other controller."""
    if directory.has_controller():
        return _("{id}: followed as before")
    return _("{id}: nobody follows it, and no controller can be brought back: its files are incomplete, or read-only")


def _tell_dry(options: Namespace) -> int:
    """Say what becomes of a job's controller where somebody follows the job."""
    directory = jobs.find_open(options.job, "attach")
    state = App().follow(directory, reads_samples=False).view.state
    is_over = directory.is_over()
    is_new = App().would_revive(directory, cleans_up=True)
    if options.output != "human":
        row = {"job_id": directory.job_id, "state": state.value, "would_be_brought_back": is_new}
        print_document({"dry_run": True, **row}, options.output)
        return ExitCode.OK
    told = _("{id}: would be followed again") if is_new else _what_stays(directory)
    if is_over:
        told = _("{id}: is over; its end would be shown")
        if is_new:
            told = _("{id}: is over; a controller would look again at hosts that were lost or still keep logs")
    print(one_line(told.format(id=directory.job_id)))
    print(_("Nothing was done: this is what would be."))
    return ExitCode.OK


async def _attach(options: Namespace) -> int:
    """Follow a job to its end; return its outcome, or 101 where the person leaves before."""
    directory = jobs.find_open(options.job, "attach")
    printer = RankPrinter(options.output, chosen_ranks(options), is_raw=options.raw)
    interrupts = Interrupts(printer, TerminalPrompter(), stops=False)
    interrupts.install()
    follower = App().follow(directory, reads_samples=False)
    tells_all = options.output == "jsonl"
    earlier = list(in_order(follower.catch_up(with_reports=tells_all)))
    if not tells_all:
        earlier = recent(earlier)
    options.unfinished = _("The job goes on: `dttui attach {id}` follows it, `dttui stop {id}` ends it.").format(
        id=directory.job_id
    )
    printer.note(_("job {id}: {state}").format(id=directory.job_id, state=state_name(follower.view.state)))
    known = {name: node.logged_ranks for name, node in follower.view.nodes.items()}
    check_ranks(options.logs, known, directory.job_id)
    printer.follow(follower, last_lines=None if tells_all else LAST_LINES)
    printer.events(earlier)
    if follower.is_over:
        if App().revive(directory, cleans_up=True):
            for pause_s in shown_to_the_end(follower, printer, is_new=True):
                if interrupts.left:
                    break
                await asyncio.sleep(pause_s)
    else:
        await follow_job(follower, printer, interrupts)
    if not follower.is_over:
        return ExitCode.NOT_FINISHED
    printer.summary(follower.view, directory)
    return follower.view.exit_code if follower.view.exit_code is not None else ExitCode.NOT_FINISHED
