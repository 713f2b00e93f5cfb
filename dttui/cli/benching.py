"""`bench`: what the links between hosts and the collectives over them can do, measured by a job of its own."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
import sys
from argparse import Namespace
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from dttui.app import App, BenchReport, KeptBench, RoundByRound
from dttui.cli.following import Interrupts, follow_job
from dttui.cli.printing import Printer, can_rewrite, one_line, print_document, print_findings, print_table
from dttui.cli.prompting import TerminalPrompter
from dttui.cli.sources import choose, own_options, read_inventory, read_submission
from dttui.compose import (
    HEADER,
    fastest_texts,
    fit_texts,
    kept_text,
    load_question,
    place_name,
    progress_text,
    row_cells,
    unfinished_text,
)
from dttui.errors import DttuiError, ExitCode, UsageError
from dttui.i18n import _
from dttui.inventory import Environment, Inventory
from dttui.jobs import JobDirectory
from dttui.spec import DocumentError, Finding, as_problem, format_bytes

MOST_CELLS = 16
"""Of the bar that stands for a vector."""
PROGRESS_S = 0.5
"""Between two looks at how far it is."""


async def bench(options: Namespace) -> int:
    """Measure by a job, once a person has agreed; print what it has found, and keep it for plans to come."""
    if options.job is not None and (other := _excluded_by_job(options)):
        raise UsageError(
            _("{option} and {other} exclude each other").format(option=other, other="--job"),
            _("The nodes of the job are measured."),
        )
    if options.explain is not None:
        return _explain(options)
    if options.show:
        return _show(options)
    like = read_submission(options, options.job) if options.job is not None else None
    inventory = like.inventory if like is not None else read_inventory(options)
    chosen = _chosen(options, inventory)
    app = App()
    submission = app.bench.submission(inventory, chosen, like, options.max)
    plan = app.plan(submission)
    if plan.errors:
        raise DocumentError(as_problem(finding, options.job or "") for finding in plan.errors)
    hosts = [node.name for node in plan.nodes]
    question = load_question(hosts, options.max)
    if options.dry_run:
        if options.output == "human":
            print(one_line(question))
            print(_("Nothing was done: this is what would be."))
        else:
            print_document({"dry_run": True, "hosts": hosts, "max_bytes": int(options.max)}, options.output)
        return ExitCode.OK
    prompter = TerminalPrompter()
    if not options.yes and not await prompter.confirm(question):
        raise UsageError(_("nothing was measured"))
    directory = app.submit(submission, plan, starts_another=True).directory
    options.interrupted = _("interrupted; `dttui status {id}` tells what became of the job").format(id=directory.job_id)
    options.unfinished = _("The job goes on: `dttui attach {id}` follows it, `dttui stop {id}` ends it.").format(
        id=directory.job_id
    )
    printer = Printer("human")
    interrupts = Interrupts(printer, prompter)
    interrupts.install()
    printer.note(_("job {id}").format(id=directory.job_id))
    follower = app.follow(directory, reads_samples=False)
    showing = asyncio.create_task(show_progress(app, directory, printer))
    try:
        await follow_job(follower, printer, interrupts)
    finally:
        showing.cancel()
        printer.close_line()
    code = follower.view.exit_code
    kept, findings = app.bench.finish(directory, follower.view)
    if options.output == "human":
        _print(kept.report, findings)
    else:
        print_document({**_document(kept, findings), "exit_code": code}, options.output)
    return ExitCode.NOT_FINISHED if code is None else code


async def show_progress(app: App, directory: JobDirectory, printer: Printer) -> None:
    """Show how many of the rows are there, until it is cancelled; on a terminal alone."""
    while can_rewrite(sys.stderr):
        with contextlib.suppress(DttuiError, OSError, ValueError):  # Of the job its end is told, whatever is shown.
            report = await asyncio.to_thread(app.bench.so_far, directory)
            if report.total:
                printer.show_share(report.share, progress_text(report))
        await asyncio.sleep(PROGRESS_S)


def _show(options: Namespace) -> int:
    """Print what was measured last; measure nothing."""
    if options.job is not None:
        like = read_submission(options, options.job)
        nodes = [like.inventory.find(node.id) for node in like.job.cluster.nodes]
        chosen = [item for item in nodes if item is not None]
    else:
        chosen = _chosen(options, read_inventory(options))
    found = App().bench.kept(chosen)
    if found is None:
        named = ["--job", options.job] if options.job is not None else ["--envs", ",".join(i.name for i in chosen)]
        command = shlex.join(["dttui", "bench", *own_options(options), *named])
        raise UsageError(
            _("nothing was measured yet between these hosts"),
            _("Measure them with `{command}`.").format(command=command),
        )
    kept, findings = found
    if options.output == "human":
        print(one_line(kept_text(kept.measured_at, kept.report, kept.addresses, [item.name for item in chosen])))
        _print(kept.report, findings)
    else:
        print_document(_document(kept, findings), options.output)
    return ExitCode.OK


def _document(kept: KeptBench, findings: Sequence[Finding]) -> dict[str, Any]:
    told = [
        item.model_dump(mode="json", include={"code", "severity", "subject", "message", "hint"}) for item in findings
    ]
    body = {"job_id": kept.job_id, "measured_at": kept.measured_at, "hosts": list(kept.addresses), "findings": told}
    return {**body, **kept.report.model_dump(mode="json")}


def _explain(options: Namespace) -> int:
    """Draw an algorithm; measure nothing."""
    chosen = _chosen(options, read_inventory(options)) if options.envs is not None else []
    explained, link = App().bench.explain(options.explain, options.ranks, options.max, chosen)
    if options.output == "human":
        _draw(explained, link)
    else:
        print_document(explained.model_dump(mode="json"), options.output)
    return ExitCode.OK


def _excluded_by_job(options: Namespace) -> str:
    """Return the option that was written and does not go with a job."""
    return "--explain" if options.explain is not None else "--envs" if options.envs is not None else ""


def _chosen(options: Namespace, inventory: Inventory) -> list[Environment]:
    """Return the environments named, each once; all for none."""
    named = [name.strip() for name in (options.envs or "").split(",") if name.strip()]
    return list({item.name: item for item in choose(inventory, named)}.values())


def _draw(explained: RoundByRound, link: str) -> None:
    """Print the messages of each round, as many a line as the terminal has room for, then the cost by numbers."""
    size = format_bytes(explained.size_bytes)
    told = _("{algorithm}: {ranks} ranks, {size}")
    print(told.format(algorithm=explained.algorithm, ranks=explained.ranks, size=size))
    cells, digits = min(explained.ranks, MOST_CELLS), len(str(explained.ranks - 1))
    for number, messages in enumerate(explained.rounds, 1):
        print("\n" + _("round {number} of {total}").format(number=number, total=len(explained.rounds)))
        drawn = [
            f"{item.source:>{digits}} → {item.target:<{digits}} {'+' if item.reduces else '='}"
            f"{_part(item.begin, item.end, cells)}"
            for item in messages
        ]
        a_line = max(1, (shutil.get_terminal_size().columns - 2) // (len(drawn[0]) + 3))
        for first in range(0, len(drawn), a_line):
            print("  " + "   ".join(drawn[first : first + a_line]))
    print("\n" + _("+ the target takes it together with its own   = it takes the place of that   █ which part"))
    print(f"\nT = {explained.formula}")
    print(
        f"  = {explained.latencies} × {explained.latency_s * 1e6:.4g} µs + {explained.volume:.4g} × {size}"
        f" ÷ {explained.bandwidth / 1e9:.4g} GB/s = {explained.seconds * 1e3:.4g} ms"
    )
    by_default = _("α and B of TCP over 10 Gbit/s; with --envs those of the slowest link that was measured")
    print(one_line(link or by_default))


def _part(begin: float, end: float, cells: int) -> str:
    """Return which part of the vector a message is, as a bar."""
    return "".join("█" if begin < (cell + 1) / cells and end > cell / cells else "·" for cell in range(cells))


def _print(report: BenchReport, findings: Sequence[Finding]) -> None:
    """Print the table of each place, then what links, hosts and algorithms are, and what there is to say of it."""
    for where, rows in groupby(report.rows, lambda row: row.where):
        print(f"\n{one_line(place_name(where))}")
        print_table(HEADER, [row_cells(row) for row in rows])
    for told in (*fit_texts(report).values(), *fastest_texts(report).values()):
        print(one_line(told))
    print_findings(findings)
    if not report.is_whole:
        print(unfinished_text())
