"""`fetch`: files that a job has left on its hosts, listed or brought here."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dttui import jobs
from dttui.app import App, FetchedFile, FileOutcome, Listing, Progress, RemoteFile, Report
from dttui.cli.printing import Printer, one_line, print_document, print_rows, print_table
from dttui.cli.prompting import TerminalPrompter
from dttui.cli.sources import read_inventory
from dttui.errors import ExitCode, UsageError
from dttui.i18n import _, ngettext
from dttui.words import moment, size_text

if TYPE_CHECKING:
    from dttui.inventory import Inventory

REDRAW_S = 0.2
TOLD_S = 10.0
"""Between two lines about how far it is, where no line can be written over."""
MOST_NOTES = 20


async def fetch(options: Namespace) -> int:
    """Bring what a job has saved, or what a person names; return 0 where all of it is here."""
    directory = jobs.find(options.job)
    if options.list and (options.into is not None or options.force):
        other = "-o" if options.into is not None else "--force"
        raise UsageError(_("{option} and {other} exclude each other").format(option="--list", other=other))
    into = None if options.list else Path(options.into or directory.job_id)
    options.unfinished = _("What came stays: the same command goes on from it.")
    options.interrupted = _("interrupted; the same command goes on from what has come")
    inventory: Inventory | None = read_inventory(options) if options.inventory or options.demo else None
    shown = _Shown(options.output, directory.job_id, asks=bool(options.path))
    async with App() as app:
        report = await app.fetch(
            directory,
            TerminalPrompter(),
            options.path,
            inventory,
            nodes=options.node,
            attempt=options.attempt,
            into=into,
            replaces=options.force,
            on_listed=shown.listed,
            on_progress=shown.progress,
            on_done=shown.done,
        )
    shown.report(report, is_list=options.list)
    return _exit_code(report)


class _Shown:
    """What is printed of a fetch: how far it is to stderr, what came of it to stdout."""

    def __init__(self, output: str, job_id: str, *, asks: bool) -> None:
        self._output = output
        self._asks = asks
        self._job_id = job_id
        self._printer = Printer(output)
        self._redrawn_at = self._told_at = time.monotonic()
        self._began: tuple[float, int] | None = None
        """When something came first, and how much was here by then."""
        self._bad = 0

    def listed(self, listings: Sequence[Listing]) -> None:
        """Say what is left out, and where there is nothing; what is asked for and not there is an error."""
        for listing in listings:
            notes = [*listing.missing.values(), *listing.notes]
            for note in (*notes[:MOST_NOTES], *([listing.error] if listing.error else ())):
                self._printer.note(one_line(f"⚠ {note}"))
            if len(notes) > MOST_NOTES:
                self._printer.note(one_line(f"⚠ … +{len(notes) - MOST_NOTES}"))
            if listing.hint:
                self._printer.note(one_line(f"  → {listing.hint}"))

    def progress(self, progress: Progress) -> None:
        """Say how far it is: over the line before where that can be, else now and then."""
        now = time.monotonic()
        self._began = self._began or (now, progress.done_bytes)
        began_at, before = self._began
        rate = (progress.done_bytes - before) / max(now - began_at, 1e-3)
        text = _("{done} of {total}, {rate}/s: {host} {path}").format(
            done=size_text(progress.done_bytes),
            total=size_text(progress.total_bytes),
            rate=size_text(max(0, int(rate))),
            host=progress.file.node,
            path=progress.file.target,
        )
        if now - self._redrawn_at >= REDRAW_S:
            self._redrawn_at = now
            self._printer.show_share(progress.done_bytes / max(1, progress.total_bytes), text)
            if not self._printer.rewrites and now - self._told_at >= TOLD_S:
                self._told_at = now
                self._printer.note(one_line(text))

    def done(self, item: FetchedFile) -> None:
        """Say what is not as it should be; as lines of JSON, each file."""
        if self._output == "jsonl":
            print_document(_row(item.file, item), self._output)
        elif item.reason and self._bad < MOST_NOTES:
            self._bad += item.outcome is not FileOutcome.FETCHED
            mark = "·" if item.outcome is FileOutcome.FETCHED else "✗"
            self._printer.note(one_line(f"{mark} {item.file.node} {item.file.target}: {item.reason}"))

    def report(self, report: Report, *, is_list: bool) -> None:
        """Print the result."""
        self._printer.close_line()
        files = [file for listing in report.listings for file in listing.files]
        if self._output == "json":
            print_document(self._document(report, is_list=is_list), self._output)
        elif is_list and self._output == "jsonl":
            print_rows([_row(file) for file in files], self._output)
        elif is_list:
            header = (_("HOST"), _("SIZE"), _("CHANGED"), _("PATH"))
            print_table(header, [_cells(file) for file in files])
        elif self._output == "human" and files:
            print(one_line(_result(report)))
        if not files and not any(listing.error or listing.missing for listing in report.listings):
            nothing = _("attempt {attempt} of job {id} has saved nothing on its hosts, as far as they know")
            if self._asks:
                nothing = _("there are no files to fetch in what was asked for")
            self._printer.note(nothing.format(attempt=report.attempt, id=self._job_id))

    def _document(self, report: Report, *, is_list: bool) -> dict[str, Any]:
        rows = [_row(file) for listing in report.listings for file in listing.files] if is_list else None
        return {
            "job_id": self._job_id,
            "attempt": report.attempt,
            "directory": report.directory,
            "bytes": report.size_bytes,
            "files": [_row(item.file, item) for item in report.done] if rows is None else rows,
            "notes": [note for listing in report.listings for note in (*listing.missing.values(), *listing.notes)],
            "errors": {listing.node: listing.error for listing in report.listings if listing.error},
        }


def _result(report: Report) -> str:
    """Return in words what is here now."""
    here = [item for item in report.done if item.is_here]
    before = sum(item.outcome is FileOutcome.HERE for item in here)
    files = ngettext("{count} file", "{count} files", len(here)).format(count=f"{len(here):,}")
    text = _("{path}: {files}, {size}, each as it is on its host").format(
        path=report.directory, files=files, size=size_text(report.size_bytes)
    )
    if before:
        text += ngettext("; {count} was here already", "; {count} were here already", before).format(count=before)
    if missing := sum(len(listing.files) for listing in report.listings) - len(here):
        text += ngettext("; {count} is missing", "; {count} are missing", missing).format(count=missing)
    if not all(listing.is_whole for listing in report.listings):
        text += _("; there is more than was listed")
    return text


def _row(file: RemoteFile, item: FetchedFile | None = None) -> dict[str, Any]:
    row = {
        "node": file.node,
        "source": file.source,
        "path": file.target,
        "bytes": file.size_bytes,
        "changed": file.time_ns / 1e9,
    }
    return row if item is None else {**row, "outcome": item.outcome.value, "reason": item.reason}


def _cells(file: RemoteFile) -> tuple[str, ...]:
    return file.node, size_text(file.size_bytes), moment(file.time_ns / 1e9), file.source


def _exit_code(report: Report) -> int:
    """Return 0 where all is here; else the code of the worst: a host, something in the way, something that changed."""
    outcomes = {item.outcome for item in report.done}
    if any(listing.error for listing in report.listings):
        return ExitCode.UNREACHABLE
    if FileOutcome.IN_THE_WAY in outcomes or any(listing.missing for listing in report.listings):
        return ExitCode.USAGE
    is_all = all(listing.is_whole for listing in report.listings) and all(item.is_here for item in report.done)
    return ExitCode.OK if is_all else ExitCode.NOT_FINISHED
