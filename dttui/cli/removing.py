"""`remove`: takes jobs that are over off this login node, after asking."""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import Namespace
from collections.abc import Sequence

from dttui.app import App, RemovableJob
from dttui.cli.printing import one_line, print_rows, table_text
from dttui.cli.prompting import TerminalPrompter
from dttui.errors import CancelledError, ExitCode, UsageError
from dttui.i18n import _, ngettext
from dttui.jobs import parse_since
from dttui.words import listed, size_text, state_name

MAX_NAMES = 8
"""Hosts that a line names."""


async def remove_jobs(options: Namespace) -> int:
    """Remove the jobs that are named, or those that are over and old enough."""
    by_age = options.finished_before is not None or options.keep is not None
    if bool(options.job) == by_age:
        raise UsageError(
            _("remove takes jobs by name, or --finished-before and --keep"),
            "dttui remove JOB; dttui remove --finished-before 30d --keep 20",
        )
    app = App()
    if by_age:
        before = options.finished_before
        moment = parse_since(before, time.time(), "--finished-before") if before is not None else None
        found = app.removable(before=moment, keep=options.keep or 0)
    else:
        found = app.removable(options.job, force=options.force)
    if options.dry_run:
        _show(found)
        _print_dry(found, options.output)
        return ExitCode.OK
    if found:
        _show(found)
        if not options.yes and not await TerminalPrompter().confirm(_question(found)):
            raise CancelledError(_("nothing was removed"))
    removed: list[RemovableJob] = []
    options.unfinished = _("The jobs that were not removed yet are there as before. Run the same command again.")
    try:
        for item in found:
            app.remove(item)
            removed.append(item)
            await asyncio.sleep(0)  # Here it may be broken off: between two jobs, and not in one.
    finally:
        _print(removed, options.output)
    return ExitCode.OK


def _show(found: Sequence[RemovableJob]) -> None:
    """Tell on standard error what is to go: standard output has what went."""
    rows = []
    for item in found:
        ended = time.strftime("%F %H:%M", time.localtime(item.job.ended_at)) if item.job.ended_at else "–"
        rows.append([item.job.job_id, state_name(item.job.state), ended, size_text(item.size_bytes)])
    sys.stderr.write(table_text([_("JOB"), _("STATE"), _("ENDED"), _("SIZE")], rows))
    for item in found:
        if item.lost:
            told = _("⚠ {id}: what may still run on {hosts} can be ended from here no more")
            sys.stderr.write(one_line(told.format(id=item.job.job_id, hosts=listed(item.lost, MAX_NAMES))) + "\n")


def _question(found: Sequence[RemovableJob]) -> str:
    size = size_text(sum(item.size_bytes for item in found))
    question = ngettext(
        "Remove {count} job from this login node: its logs, events and telemetry, {size}.",
        "Remove {count} jobs from this login node: their logs, events and telemetry, {size}.",
        len(found),
    ).format(count=len(found), size=size)
    return question + "\n" + _("What is on the hosts stays there, checkpoints too.")


def _print_dry(found: Sequence[RemovableJob], output: str) -> None:
    if output != "human":
        rows = [{"job_id": item.job.job_id, "frees_bytes": item.size_bytes, "dry_run": True} for item in found]
        print_rows(rows, output)
        return
    size = size_text(sum(item.size_bytes for item in found))
    told = ngettext("would remove {count} job and free {size}", "would remove {count} jobs and free {size}", len(found))
    print(told.format(count=len(found), size=size))
    print(_("Nothing was done: this is what would be."))


def _print(removed: Sequence[RemovableJob], output: str) -> None:
    if output != "human":
        rows = [{"job_id": item.job.job_id, "freed_bytes": item.size_bytes} for item in removed]
        print_rows(rows, output)
        return
    size = size_text(sum(item.size_bytes for item in removed))
    told = ngettext("{count} job removed, {size} freed", "{count} jobs removed, {size} freed", len(removed))
    print(told.format(count=len(removed), size=size))
    if removed:
        sys.stderr.write(
            _("What they left on hosts stays there: `dttui agents remove --jobs` removes it, but for checkpoints.")
            + "\n"
        )
