"""`calibrate`: what estimates have learned from jobs that are over, before and after; and to forget it."""

from __future__ import annotations

import time
from argparse import Namespace
from dataclasses import asdict
from typing import Any

from dttui.app import App
from dttui.cli.printing import print_document, table_text
from dttui.cli.prompting import TerminalPrompter
from dttui.compose import CalibrationAnswer
from dttui.errors import CancelledError, ExitCode
from dttui.i18n import _, ngettext
from dttui.planning.cost_text import seconds
from dttui.words import gigabytes, listed

MOST_NAMES = 5
"""Jobs that a line names; the others are counted."""


async def calibrate(options: Namespace) -> int:
    """Show what was learned, or forget it."""
    drafts = App().drafts
    if options.drop is None:
        answer = drafts.calibration()
        if options.output != "human":
            print_document(_document(answer), options.output)
        else:
            print("\n".join([*_factor_lines(answer), *_job_lines(answer)]))
        return ExitCode.OK
    kind = options.drop or None
    jobs = drafts.drop_calibration(kind, dry_run=True)
    if options.dry_run:
        _print_dropped(jobs, options.output, dry_run=True)
        return ExitCode.OK
    if jobs and not options.yes and not await TerminalPrompter().confirm(_question(jobs)):
        raise CancelledError(_("nothing was forgotten"))
    _print_dropped(drafts.drop_calibration(kind) if jobs else (), options.output)
    return ExitCode.OK


def _document(answer: CalibrationAnswer) -> dict[str, Any]:
    jobs = []
    for item in answer.jobs:
        run, basis = item.run, item.run.basis
        row: dict[str, Any] = {"job_id": run.job, "ended_at": run.ended_at, "kind": basis.kind}
        row |= {"precision": basis.layout.precision, "ranks": basis.layout.ranks}
        times = (run.step_time_s, item.step_time_before_s, item.step_time_after_s)
        sizes = (run.memory_bytes, item.memory_before_bytes, item.memory_after_bytes)
        for name, values in (("step_time_s", times), ("memory_bytes", sizes)):
            row[name] = dict(zip(("measured", "before", "after"), values, strict=True))
        jobs.append(row)
    return {
        "kinds": {kind: asdict(learned) for kind, learned in answer.kinds.items()},
        "jobs": jobs,
        "unknown_kinds": list(answer.unknown_kinds),
    }


def _factor_lines(answer: CalibrationAnswer) -> list[str]:
    """Return a line for each factor, with what it is from."""
    lines = []
    for kind, learned in answer.kinds.items():
        for precision, item in learned.time.items():
            told = _("{kind}, {precision}: computing ×{compute}, traffic ×{traffic}, ±{spread}; {jobs}")
            if not item.are_apart:
                told = _("{kind}, {precision}: the step ×{compute}, ±{spread}; {jobs}")
            text = told.format(
                kind=kind,
                precision=precision,
                compute=f"{item.compute:.3g}",
                traffic=f"{item.traffic:.3g}",
                spread=f"{item.spread:.0%}",
                jobs=_source(item.source.jobs, item.source.first_at, item.source.last_at),
            )
            lines.append(text)
            if not item.are_apart:
                lines.append("  " + _("computing and traffic cannot be told apart: too few jobs, or too alike ones"))
        if (memory := learned.memory) is not None:
            size = f"{memory.offset_bytes / 1e9:+.2f} GB" if memory.offset_bytes else f"×{memory.factor:.3g}"
            told = _("{kind}: memory {size}, ±{spread}; {jobs}")
            source = _source(memory.source.jobs, memory.source.first_at, memory.source.last_at)
            lines.append(told.format(kind=kind, size=size, spread=f"{memory.spread:.0%}", jobs=source))
    for kind in answer.unknown_kinds:
        lines.append(_("{kind}: no type of that name is known any more; its jobs count for nothing").format(kind=kind))
    if not lines:
        lines.append(_("nothing was learned yet: a job whose plan has an estimate leaves what it has taken"))
    return lines


def _source(jobs: tuple[str, ...], first_at: float, last_at: float) -> str:
    days = dict.fromkeys(time.strftime("%F", time.localtime(moment)) for moment in (first_at, last_at))
    told = ngettext("{count} job, {days}", "{count} jobs, {days}", len(jobs))
    return told.format(count=len(jobs), days=" – ".join(days))


def _job_lines(answer: CalibrationAnswer) -> list[str]:
    """Return a table of jobs: measured, and estimated before and after."""
    rows = []
    for item in answer.jobs:
        run, basis = item.run, item.run.basis
        row = [basis.kind, basis.layout.precision, str(basis.layout.ranks)]
        if (step_s := run.step_time_s) is None:
            row += ["–"] * 3
        else:
            row += [
                seconds(step_s),
                *(_off(told, step_s) for told in (item.step_time_before_s, item.step_time_after_s)),
            ]
        if (held := run.memory_bytes) is None:
            row += ["–"] * 3
        else:
            estimates = (item.memory_before_bytes, item.memory_after_bytes)
            row += [gigabytes(int(held)), *(_off(told, held) for told in estimates)]
        rows.append([*row, run.job])
    if not rows:
        return []
    before, after = _("BEFORE"), _("AFTER")
    header = [_("KIND"), _("PRECISION"), _("RANKS"), _("STEP"), before, after, _("MEMORY"), before, after, _("JOB")]
    return ["", table_text(header, rows).rstrip("\n"), _("before and after: the estimate against what was measured")]


def _off(estimated: float, measured: float) -> str:
    return f"{round(estimated / measured - 1, 2) + 0.0:+.0%}"


def _question(jobs: tuple[str, ...]) -> str:
    told = ngettext(
        "Forget what estimates have learned from {count} job: {jobs}.",
        "Forget what estimates have learned from {count} jobs: {jobs}.",
        len(jobs),
    )
    return told.format(count=len(jobs), jobs=listed(list(jobs), MOST_NAMES))


def _print_dropped(jobs: tuple[str, ...], output: str, *, dry_run: bool = False) -> None:
    if output != "human":
        print_document({"forgotten": list(jobs), "dry_run": dry_run}, output)
        return
    told = ngettext("{count} job forgotten", "{count} jobs forgotten", len(jobs))
    if dry_run:
        told = ngettext("would forget {count} job", "would forget {count} jobs", len(jobs))
    print(told.format(count=len(jobs)))
    if dry_run:
        print(_("Nothing was done: this is what would be."))
