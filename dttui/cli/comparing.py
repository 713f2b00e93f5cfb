"""`compare`: what differs between two jobs, and how they trained at equal steps."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dttui import jobs
from dttui.cli.figures import figures_text, number
from dttui.cli.printing import one_line, print_document, table_text
from dttui.errors import ExitCode
from dttui.i18n import _, ngettext
from dttui.jobs import ComparedJob, Comparison, JobSummary
from dttui.words import clock, measure_name, state_name

MOST_DIFFERENCES = 60
"""That are printed for a person; JSON has all."""
MOST_CELL_CHARS = 40
_SPEEDS = ("tokens_per_s", "samples_per_s")


def compare(options: Namespace) -> int:
    """Print two jobs side by side."""
    first, second = jobs.find(options.first), jobs.find(options.second)
    found = jobs.compare(first, second)
    summaries = jobs.summarize(first), jobs.summarize(second)
    if options.output != "human":
        print_document(_document(found, summaries), options.output)
        return ExitCode.OK
    for name, text in (
        ("", _jobs_text(found, summaries)),
        (_("configuration"), _configuration_text(found)),
        (_("versions"), _versions_text(found)),
        (_("at equal steps"), _steps_text(found)),
        (_("estimated and measured"), _figures_text(found)),
    ):
        print((f"\n{name}\n" if name else "") + text, end="")
    return ExitCode.OK


def _document(found: Comparison, summaries: Sequence[JobSummary]) -> dict[str, Any]:
    return {
        "jobs": [
            {
                "job_id": job.job_id,
                "name": job.name,
                "state": job.state.value,
                "cause": job.cause,
                "attempts": job.attempts,
                "started_at": job.started_at,
                "ended_at": job.ended_at,
                "last_step": _last_step(side),
                "step_time_s": side.step_time_s,
                "versions": side.versions,
                "figures": {name: asdict(figure) for name, figure in side.view.figures.items()},
                "not_compared": side.trouble or None,
            }
            for job, side in zip(summaries, (found.first, found.second), strict=True)
        ],
        "configuration": [
            {"key": item.key, "first": item.values[0], "second": item.values[1]} for item in found.differences
        ],
        "steps": [
            {
                "step": row.step,
                "loss": [row.first.loss, row.second.loss],
                "step_time_s": [row.first_step_s, row.second_step_s],
                **{name: [getattr(row.first, name), getattr(row.second, name)] for name in _SPEEDS},
            }
            for row in found.rows
        ],
        "step_time_ratio": found.step_time_ratio,
    }


def _jobs_text(found: Comparison, summaries: Sequence[JobSummary]) -> str:
    header = ("", _("JOB"), _("STATE"), _("CAUSE"), _("TOOK"), _("ATTEMPTS"), _("LAST STEP"))
    rows = []
    for letter, job, side in zip("AB", summaries, (found.first, found.second), strict=True):
        took = "–" if job.took_s is None else clock(job.took_s)
        step = _last_step(side)
        last = "–" if step is None else f"{step:,}"
        rows.append((letter, job.job_id, state_name(job.state), job.cause or "–", took, str(job.attempts), last))
    return table_text(header, rows)


def _configuration_text(found: Comparison) -> str:
    troubles = [side.trouble for side in (found.first, found.second) if side.trouble]
    text = "".join("  ⚠ " + one_line(_("the job files are not compared: {reason}").format(reason=reason)) + "\n"
                   for reason in troubles)  # fmt: skip
    if not found.differences:
        return text if troubles else text + "  " + _("the same") + "\n"
    shown = found.differences[:MOST_DIFFERENCES]
    text += table_text((_("KEY"), "A", "B"), [(item.key, *map(_cell, item.values)) for item in shown])
    if (more := len(found.differences) - len(shown)) > 0:
        told = ngettext("… and {count} more; --output json has all", "… and {count} more; --output json has all", more)
        text += told.format(count=more) + "\n"
    return text


def _versions_text(found: Comparison) -> str:
    first, second = found.first.versions, found.second.versions
    items = list({**first, **second})
    if not items:
        return "  " + _("not recorded: an earlier version of dttui ran them, or they never came to be checked") + "\n"
    unknown = _("not recorded")
    rows = []
    for item in items:
        one, two = (told.get(item, unknown if not told else "–") for told in (first, second))
        rows.append((item, one, two, "" if one == two else "≠"))
    return table_text((_("WHAT"), "A", "B", ""), rows)


def _steps_text(found: Comparison) -> str:
    if not found.rows:
        return "  " + _("there is no step that both have reported") + "\n"
    told = [name for name in _SPEEDS if any(getattr(side, name) is not None for row in found.rows for side in row[1:3])]
    header = [_("STEP"), *_pair(_("LOSS")), *_pair(_("SECONDS")), "B/A"]
    for name in told[:1]:
        header += _pair(measure_name(name))
    rows = []
    for row in found.rows:
        cells = [f"{row.step:,}", *map(_number, (row.first.loss, row.second.loss, row.first_step_s, row.second_step_s))]
        ratio = row.second_step_s / row.first_step_s if row.first_step_s and row.second_step_s else None
        cells.append(_number(ratio, 3))
        for name in told[:1]:
            cells += [_number(getattr(side, name)) for side in (row.first, row.second)]
        rows.append(cells)
    text = table_text(header, rows)
    one, two, ratio = found.first.step_time_s, found.second.step_time_s, found.step_time_ratio
    if ratio is not None:
        line = _("a step usually takes {first} s in A and {second} s in B: {ratio} times as long")
        text += line.format(first=_number(one), second=_number(two), ratio=_number(ratio, 3)) + "\n"
    return text


def _figures_text(found: Comparison) -> str:
    text = ""
    for letter, side in zip("AB", (found.first, found.second), strict=True):
        text += f"  {letter}\n" + (figures_text(side.view.figures) or "  " + _("nothing was kept of it") + "\n")
    return text


def _pair(name: str) -> list[str]:
    return [f"{name} A", f"{name} B"]


def _number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else number(value, digits)


def _cell(value: Any) -> str:
    text = "–" if value is None else one_line(value if isinstance(value, str) else json.dumps(value))
    return text if len(text) <= MOST_CELL_CHARS else f"{text[: MOST_CELL_CHARS - 1]}…"


def _last_step(side: ComparedJob) -> int | None:
    return max(side.course.steps, default=None)
