"""Estimates and recommendations as lines for a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from dttui.i18n import _, ngettext
from dttui.planning import Estimate, JobAdvice, amdahl_text
from dttui.planning.advice_rows import common_gaps, compared, layouts, other_framework, reasons, sought
from dttui.planning.cost_text import (
    Row,
    assumption_texts,
    choice_texts,
    failure_costs,
    fit,
    fit_text,
    gap_text,
    host_memory,
    measured_text,
    memory_parts,
    memory_text,
    not_in_memory_text,
    rates,
    scaling,
    seconds,
    step_ends_text,
    step_parts,
    step_text,
)
from dttui.spec import text_width
from dttui.words import listed

SHOWN = 8
"""Recommendations shown to a person; a program gets all."""
MOST_JOBS = 3
"""That a line names; the others are counted."""


def estimate_lines(result: Estimate, now: float) -> list[str]:
    """Return what one layout costs.

    Args:
        result: what it costs.
        now: seconds since the epoch, to say how long ago inputs were measured.
    """
    lines = [
        "  ".join([_("memory/GPU"), memory_text(result), fit_text(fit(result))]),
        *_part_lines(memory_parts(result)),
        *_row_lines(host_memory(result)),
        not_in_memory_text(result),
        *gap_lines(result),
        "",
        "  ".join([_("step time"), step_text(result), step_ends_text(result)]),
        *_part_lines(step_parts(result)),
        "",
        *_row_lines([*rates(result), *failure_costs(result)]),
        *_scaling_lines(result),
        *choice_texts(result),
    ]
    known: dict[str, dict[str, Any]] = {}
    for name, item in result.inputs.items():
        if item.source == "measured":
            known.setdefault(measured_text(item, now), {})[name] = item.value
    lines += [f"{age}: {_told_inputs(values)}" for age, values in known.items()]
    usual = {name: item.value for name, item in result.inputs.items() if item.source == "default"}
    if usual:
        lines.append(_("taken by default: {names}").format(names=_told_inputs(usual)))
    return lines


def gap_lines(result: Estimate) -> list[str]:
    """Return what an estimate takes for granted, and what the job says that it does not count."""
    return [*assumption_texts(result), *map(gap_text, result.not_counted)]


def _told_inputs(values: Mapping[str, Any]) -> str:
    """Return inputs by name, those that decide most first, with their values."""
    words: dict[str, Callable[[Any], str]] = {
        "intra_bandwidth": lambda rate: _("inside a node {rate} GB/s a GPU").format(rate=f"{rate / 1e9:g}"),
        "inter_bandwidth": lambda rate: _("inter-node {rate} GB/s a GPU").format(rate=f"{rate / 1e9:g}"),
        "inter_latency_s": lambda delay: _("inter-node latency {time}").format(time=seconds(delay)),
        "layout.global_batch": lambda batch: _("global batch {batch}").format(batch=f"{batch:,}"),
        "layout.micro_batch": lambda size: _("micro-batch {size}").format(size=size),
        "model.layers": lambda count: ngettext("{count} layer", "{count} layers", count).format(count=count),
        "model.hidden_size": lambda size: _("hidden {size}").format(size=size),
        "model.heads": lambda count: _("{count} attention heads").format(count=count),
        "model.seq_length": lambda count: _("{count} tokens a sequence").format(count=f"{count:,}"),
        "model.vocab_size": lambda count: _("vocabulary of {count}").format(count=f"{count:,}"),
        "model.kv_heads": lambda count: _("{count} heads of keys and values").format(count=count),
        "model.head_size": lambda size: _("heads of {size}").format(size=size),
        "model.ffn_size": lambda size: _("feed-forward {size}").format(size=f"{size:,}"),
        "model.gated": lambda is_so: _("gated") if is_so else _("not gated"),
        "model.tied": lambda is_so: _("tied embeddings") if is_so else _("an output layer of its own"),
        "model.attention": lambda kind: _("{kind} attention").format(kind=kind),
        "model.causal": lambda is_so: _("causal") if is_so else _("not causal"),
        "model.dropout": lambda is_so: _("dropout") if is_so else _("no dropout"),
        "layout.precision": str,
        "calibration.compute": lambda times: _("computing ×{factor}").format(factor=f"{times:.3g}"),
        "calibration.traffic": lambda times: _("traffic ×{factor}").format(factor=f"{times:.3g}"),
        "calibration.time_spread": lambda spread: _("steps ±{spread}").format(spread=f"{spread:.0%}"),
        "calibration.time_jobs": _learned_from,
        "calibration.memory_factor": lambda times: _("memory ×{factor}").format(factor=f"{times:.3g}"),
        "calibration.memory_bytes": lambda size: _("memory {size} GB").format(size=f"{size / 1e9:+.2f}"),
        "calibration.memory_spread": lambda spread: _("memory ±{spread}").format(spread=f"{spread:.0%}"),
        "calibration.memory_jobs": _learned_from,
    }
    told = [word(values[name]) for name, word in words.items() if name in values]
    return ", ".join([*told, *(name for name in values if name not in words)])


def _learned_from(jobs: str) -> str:
    return _("learned from {jobs}").format(jobs=listed(jobs.split(", "), MOST_JOBS))


def advice_lines(found: JobAdvice) -> list[str]:
    """Return what was searched for, and the fastest layouts with their reasons."""
    shown = found.advice.candidates[:SHOWN]
    head, *rows = layouts(shown).lines()
    places = len(str(len(shown))) + 2
    lines = [*sought(found, {}), "", _blank(places, "") + head]
    for place, (item, row, told) in enumerate(zip(shown, rows, reasons(shown), strict=True), start=1):
        lines.append(f"{_blank(places - 2, str(place))}{place}. {row}")
        other = other_framework(found.framework, item, {})
        lines += [_blank(places, "") + text for text in (other, *told) if text]
    if shown:
        lines += gap_lines(shown[0].estimate.model_copy(update={"not_counted": common_gaps(shown)}))
    rest = len(found.advice.candidates) - SHOWN
    if rest > 0:
        lines.append(_("{count} more with --output json").format(count=rest))
    return [*lines, compared(found.advice)]


def edit_lines(edit: dict[str, Any], framework_problem: str | None) -> list[str]:
    """Return what to write into the job file for the first recommendation, and what its framework lacks for it."""
    text = yaml.safe_dump(edit, sort_keys=False, default_flow_style=None)
    told = _("To take the first, write this under `distributed_training`:")
    return ["", told, *(f"  {line}" for line in text.splitlines()), *([framework_problem] if framework_problem else [])]


def _scaling_lines(result: Estimate) -> list[str]:
    table, law = scaling(result), amdahl_text(result)
    return ([] if table is None else table.lines()) + ([] if law is None else [law])


def _part_lines(rows: Sequence[Row]) -> list[str]:
    width = max((text_width(row.value) for row in rows), default=0)
    return [f"  {_blank(width, row.value)}{row.value}  {row.share:>4.0%}  {row.label}" for row in rows]


def _row_lines(rows: Sequence[Row]) -> list[str]:
    width = max((text_width(row.label) for row in rows), default=0)
    return [f"{row.label}{_blank(width, row.label)}  {row.value}" for row in rows]


def _blank(width: int, text: str) -> str:
    return " " * (width - text_width(text))
