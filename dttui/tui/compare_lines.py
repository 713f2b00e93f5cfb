"""What is told of jobs that are compared: a line each, the keys in which they differ, their curves. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len
from textual.content import Content

from dttui.i18n import _, ngettext
from dttui.jobs import ComparedJob, Contrast, JobEntry, smoothed
from dttui.tui import symbols
from dttui.tui.plots import is_smoothed
from dttui.tui.rows import line
from dttui.tui.widgets.cells import fit
from dttui.tui.widgets.curve_plot import faint
from dttui.tui.widgets.plot_area import Curves, Stroke
from dttui.tui.widgets.plot_axes import Begin
from dttui.words import measure_name

LETTERS = "ABCDEFGH"
COLOURS = ("plot-loss", "master", "plot-speed", "plot-other", "state-failed", "finding-warning", "gpu-busy", "muted")
"""Of each letter."""
MOST_JOBS = len(LETTERS)
MOST_KEY = 44
LEAST_CELL = 8
_SPEEDS = ("tokens_per_s", "samples_per_s")


class ComparedCurves(NamedTuple):
    """What is drawn on one plot."""

    title: str
    curves: Curves


def job_lines(entries: Sequence[JobEntry], found: Contrast, width: int) -> Content:
    """Return a line a job: its letter, which it is, and how it went; it gets `width` cells."""
    rows: list[tuple[str, ...]] = [("", "", _("state"), _("took"), _("step"), _("best loss"), _("seconds a step"))]
    rows += [_job_cells(*pair) for pair in zip(LETTERS, entries, found.jobs, strict=False)]
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]))]
    widths[1] = max(LEAST_CELL, min(widths[1], width - sum(widths) + widths[1] - 2 * (len(widths) - 1)))
    lines = []
    for number, row in enumerate(rows):
        cells = [fit(text, cells, right=place > 2) for place, (text, cells) in enumerate(zip(row, widths, strict=True))]
        if number == 0:
            lines.append(Content.styled("  ".join(cells), "$muted"))
        else:
            state = symbols.job_state(entries[number - 1].summary.state)
            styles = [f"bold ${COLOURS[number - 1]}", "bold", f"${state.colour}"]
            shown = [Content.styled(*cell) for cell in zip(cells, [*styles, *[""] * (len(cells) - 3)], strict=True)]
            lines.append(Content("  ").join(shown))
    return Content("\n").join(lines)


def _job_cells(letter: str, entry: JobEntry, side: ComparedJob) -> tuple[str, ...]:
    job = entry.summary
    return (
        letter,
        job.job_id,
        str(symbols.job_state(job.state)),
        "–" if job.took_s is None else symbols.clock(job.took_s),
        "–" if entry.last_step is None else f"{entry.last_step:,}",
        "–" if entry.best_loss is None else symbols.number(entry.best_loss),
        "–" if side.step_time_s is None else symbols.number(side.step_time_s),
    )


def difference_lines(found: Contrast, width: int) -> Content:
    """Return the keys in which the jobs differ, a line each, in `width` cells."""
    lines = [Content.styled(f"⚠ {text}", "$finding-warning") for text in _troubles(found)]
    if not found.differences:
        same = "" if lines else _("Their configuration is the same.")
        return Content("\n").join([*lines, Content.styled(same, "$muted")])
    count = len(found.jobs)
    key_width = min(MOST_KEY, max(cell_len(line(item.key)) for item in found.differences), width * 2 // 5)
    cell = max(LEAST_CELL, (width - key_width) // count - 2)
    heads = [(fit(LETTERS[number], cell), f"bold ${COLOURS[number]}") for number in range(count)]
    lines.append(Content("  ").join([Content(" " * key_width), *(Content.styled(*head) for head in heads)]))
    for item in found.differences:
        cells = [_cell(value) for value in item.values]
        pieces = [Content.styled(fit(line(item.key), key_width), "$muted")]
        pieces += [
            Content.styled(fit(text, cell), "" if number == 0 or text == cells[0] else "bold")
            for number, text in enumerate(cells)
        ]
        lines.append(Content("  ").join(pieces))
    return Content("\n").join(lines)


def differences_title(found: Contrast) -> str:
    """Return the heading of the differences."""
    count = len(found.differences)
    return ngettext("{count} difference of configuration", "{count} differences of configuration", count).format(
        count=count
    )


def compared_curves(found: Contrast) -> tuple[ComparedCurves, ComparedCurves]:
    """Return what is drawn of loss and of speed, by step."""
    loss = _strokes(found, "loss")
    speed = next((field for field in _SPEEDS if _strokes(found, field)), _SPEEDS[0])
    title = _("{measure} by step")
    return (
        ComparedCurves(title.format(measure=measure_name("loss")), Curves(loss, Begin.ANYWHERE)),
        ComparedCurves(title.format(measure=measure_name(speed)), Curves(_strokes(found, speed), Begin.ZERO)),
    )


def _strokes(found: Contrast, field: str) -> list[Stroke]:
    """Return a curve a job, each with its letter; of what is noisy the curves without that, over those as reported."""
    raw, strokes = [], []
    for letter, colour, side in zip(LETTERS, COLOURS, found.jobs, strict=False):
        steps = sorted(side.course.steps.items())
        points = tuple((float(step), value) for step, told in steps if (value := getattr(told, field)) is not None)
        if points and is_smoothed(field):
            raw.append(Stroke(faint(colour), points))
            strokes.append(Stroke(colour, smoothed(points), letter=letter))
        elif points:
            strokes.append(Stroke(colour, points, letter=letter))
    return [*raw, *strokes]


def _troubles(found: Contrast) -> Iterator[str]:
    for letter, side in zip(LETTERS, found.jobs, strict=False):
        if side.trouble:
            text = _("the job files are not compared: {reason}").format(reason=f"{letter}: {side.trouble}")
            yield line(text)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
