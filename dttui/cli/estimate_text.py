"""Estimates and recommendations as lines for a person."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import yaml

from dttui.i18n import _
from dttui.planning import Estimate, JobAdvice, amdahl_text, default_texts, input_text, layout_line, model_line
from dttui.planning.advice_rows import common_gaps, compared, layouts, legend, reasons, sought
from dttui.planning.cost_text import (
    Row,
    Shrinking,
    assumption_texts,
    choice_texts,
    failure_costs,
    fit,
    fit_text,
    gap_text,
    goal_rows,
    host_memory,
    measured_text,
    memory_parts,
    memory_text,
    not_in_memory_text,
    rates,
    scaling,
    step_ends_text,
    step_parts,
    step_text,
)
from dttui.spec import text_width

LEAST_COLUMNS = 40
_PIECES = re.compile(r"\s*(?:[^\s\u2e80-\uffff]+|[\u2e80-\uffff])[，。；：、）]*")
"""Of a text, what no line break parts: words, and of Chinese each character."""
SHOWN = 8
"""Recommendations shown to a person; a program gets all."""


def estimate_lines(result: Estimate, now: float, shrinking: Shrinking | None = None) -> list[str]:
    """Return what one layout costs: what it is of, the figures, their parts, what they rest on.

    Args:
        result: what it costs.
        now: seconds since the epoch, to say how long ago inputs were measured.
        shrinking: what would shrink its largest parts.
    """
    head = [
        Row(_("memory/GPU"), "  ".join([memory_text(result), fit_text(fit(result))])),
        Row(_("step time"), "  ".join([step_text(result), step_ends_text(result)])),
        *rates(result),
        *goal_rows(result),
    ]
    memory = [*_part_lines(memory_parts(result, shrinking)), *_row_lines(host_memory(result))]
    known: dict[str, list[str]] = {}
    for name, item in result.inputs.items():
        if item.source == "measured":
            known.setdefault(measured_text(item, now), []).append(input_text(name, item.value))
    rest = [*gap_lines(result), not_in_memory_text(result)]
    rest += [f"{age}: {', '.join(told)}" for age, told in known.items()]
    if usual := default_texts(result):
        rest.append(_("taken by default: {names}").format(names=", ".join(usual)))
    return [
        *_broken([model_line(result), layout_line(result)]),
        "",
        *_row_lines(head),
        "",
        _("Memory of the fullest GPU"),
        *memory,
        _("Time of a step"),
        *_part_lines(step_parts(result, shrinking)),
        "",
        *_row_lines(failure_costs(result)),
        *_scaling_lines(result),
        *_broken(choice_texts(result)),
        *_broken(rest),
    ]


def gap_lines(result: Estimate) -> list[str]:
    """Return what an estimate takes for granted, and what the job says that it does not count."""
    return [*assumption_texts(result), *map(gap_text, result.not_counted)]


def advice_lines(found: JobAdvice) -> list[str]:
    """Return what was searched for, and the fastest layouts with their reasons."""
    shown = found.advice.candidates[:SHOWN]
    head, *rows = layouts(shown, found.framework, {}).lines()
    places = len(str(len(shown))) + 2
    lines = [*_broken([*sought(found, {}), legend(shown)]), "", _blank(places, "") + head]
    for place, (row, told) in enumerate(zip(rows, reasons(shown), strict=True), start=1):
        lines.append(f"{_blank(places - 2, str(place))}{place}. {row}")
        lines += [_blank(places, "") + line for line in _broken([text for text in told if text], places)]
    if shown:
        first = shown[0].estimate
        lines += ["", _("Of the first:"), *_row_lines([*goal_rows(first), *failure_costs(first)])]
        lines += _broken(gap_lines(first.model_copy(update={"not_counted": common_gaps(shown)})))
    rest = len(found.advice.candidates) - SHOWN
    if rest > 0:
        lines.append(_("{count} more with --output json").format(count=rest))
    return [*lines, compared(found.advice)]


def edit_lines(edit: dict[str, Any], notes: Sequence[str | None]) -> list[str]:
    """Return what to write into the job file for the first recommendation, and what there is to say of that."""
    text = yaml.safe_dump(edit, sort_keys=False, default_flow_style=None)
    told = _("To take the first, write this under `distributed_training`:")
    return ["", told, *(f"  {line}" for line in text.splitlines()), *_broken([note for note in notes if note])]


def _scaling_lines(result: Estimate) -> list[str]:
    table, law = scaling(result), amdahl_text(result)
    return ([] if table is None else table.lines()) + ([] if law is None else _broken([law]))


def _part_lines(rows: Sequence[Row]) -> list[str]:
    width = max((text_width(row.value) for row in rows), default=0)
    lines = []
    for row in rows:
        lines.append(f"  {_blank(width, row.value)}{row.value}  {row.share:>4.0%}  {row.label}")
        lines += [f"     → {text}" for text in row.advice]
    return lines


def _row_lines(rows: Sequence[Row]) -> list[str]:
    width = max((text_width(row.label) for row in rows), default=0)
    return [f"{row.label}{_blank(width, row.label)}  {row.value}" for row in rows]


def _broken(texts: Sequence[str], margin: int = 0) -> list[str]:
    """Return texts in lines as wide as the terminal, the later ones of each indented; without one as they are.

    Args:
        texts: a paragraph each.
        margin: columns to leave at the left.
    """
    if not sys.stdout.isatty():
        return list(texts)
    room = max(shutil.get_terminal_size().columns, LEAST_COLUMNS) - margin
    lines = []
    for text in texts:
        line = ""
        for piece in _PIECES.findall(text):
            if line.strip() and text_width(line) + text_width(piece) > room:
                lines.append(line)
                line = "  "
                piece = piece.lstrip()
            line += piece
        lines.append(line)
    return lines


def _blank(width: int, text: str) -> str:
    return " " * (width - text_width(text))
