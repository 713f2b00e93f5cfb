"""What a search for layouts came to, in rows and sentences for a person. The terminal and the screen draw the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dtagent.protocol.metric_fields import scaled

from dttui.i18n import _
from dttui.planning.advising import framework_of
from dttui.planning.cost.recommend import Advice, JobAdvice, Recommendation
from dttui.planning.cost_text import CostTable, gap_text, is_of_images, memory_range, seconds
from dttui.planning.input_words import model_line
from dttui.sanitize import clean

_WORDS = frozenset({5, 6, 7})
"""Columns of words; the others are numbers."""


def sought(found: JobAdvice, labels: Mapping[str, str]) -> list[str]:
    """Return what was searched for, then what is usual by the model's size alone, a line each.

    Args:
        found: what the search came to.
        labels: what frameworks are called, by name; one that is not among them is called by its name.
    """
    advice = found.advice
    batch = _("global batch {batch}") if found.batch_is_given else _("global batch {batch} (taken by default)")
    told = [model_line(item.estimate) for item in advice.candidates[:1]]
    kinds = found.gpu_types or {found.gpu: found.gpus}
    gpus = " + ".join(f"{count} × {clean(kind)}" for kind, count in kinds.items())
    if found.gpu_types:
        gpus += " · " + _("each counted as {gpu}, for which all wait").format(gpu=clean(found.gpu))
    told.append(f"{gpus} · {batch.format(batch=f'{found.global_batch:,}')}")
    label = labels.get(advice.framework, advice.framework)
    told.append(_("by size alone: {framework}; {reason}").format(framework=label, reason=advice.framework_reason))
    if advice.guide:
        told.append(advice.guide)
    elif not found.shape_is_given:
        told.append(_("Layers and hidden size are not given: those of a published model are taken."))
    return told


def compared(advice: Advice) -> str:
    """Return how many layouts were looked at, and how many of them are out of the question."""
    text = _("{tried} layouts compared, {large} of them too large")
    return text.format(tried=f"{advice.tried:,}", large=f"{advice.too_large:,}")


def layouts(
    candidates: Sequence[Recommendation],
    framework: str | None,
    labels: Mapping[str, str],
    *,
    is_narrow: bool = False,
) -> CostTable:
    """Return a row a layout: its degrees and what goes with them, what it costs, and which framework takes its place.

    Args:
        candidates: the layouts.
        framework: the job's; `None` without a job, or where it names none.
        labels: what frameworks are called, see `sought`.
        is_narrow: whether there is no room for the throughput, which follows from the time of a step.
    """
    has_images = any(is_of_images(item.estimate) for item in candidates)
    head = [
        "DP",
        "TP",
        "PP",
        "ZeRO",
        _("micro"),
        "SP",
        _("recompute"),
        _("schedule"),
        _("step"),
        _("images/s") if has_images else _("tokens/s"),
        _("GB/GPU"),
    ]
    shared = [
        ("CP", [item.context_parallel_size for item in candidates]),
        ("EP", [item.expert_parallel_size for item in candidates]),
    ]
    # What none of them shares out is no column.
    shared = [(name, degrees) for name, degrees in shared if any(degree > 1 for degree in degrees)]
    rows = [
        [*_cells(item)[:3], *(str(degrees[place]) for _name, degrees in shared), *_cells(item)[3:]]
        for place, item in enumerate(candidates)
    ]
    head[3:3] = [name for name, _degrees in shared]
    words = {column + len(shared) for column in _WORDS}
    if is_narrow:
        del head[-2]
        rows = [[*row[:-2], row[-1]] for row in rows]
    others = [_other_framework(framework, item, labels) for item in candidates]
    if any(others):
        words.add(len(head))
        head.append(_("framework"))
        rows = [[*row, other] for row, other in zip(rows, others, strict=True)]
    return CostTable(head, rows, frozenset(words))


def legend(candidates: Sequence[Recommendation]) -> str:
    """Return what the heads of `layouts` stand for that are letters."""
    told = ["DP " + _("data"), "TP " + _("tensor"), "PP " + _("pipeline")]
    if any(item.context_parallel_size > 1 for item in candidates):
        told.append("CP " + _("context"))
    if any(item.expert_parallel_size > 1 for item in candidates):
        told.append("EP " + _("expert"))
    text = _("degrees: {degrees}; micro: sequences at once; SP: sequence parallel")
    if any(is_of_images(item.estimate) for item in candidates):
        text = _("degrees: {degrees}; micro: images at once; SP: sequence parallel")
    return text.format(degrees=", ".join(told))


def common_gaps(candidates: Sequence[Recommendation]) -> list[str]:
    """Return what is not counted of any of some candidates."""
    first, *others = (item.estimate.not_counted for item in candidates) if candidates else ([],)
    return [gap for gap in first if all(gap in other for other in others)]


def reasons(candidates: Sequence[Recommendation]) -> list[list[str]]:
    """Return for each layout what speaks for it, or against, and what is not counted of it and is of another."""
    common = common_gaps(candidates)
    # Of a row that takes another framework, that one's own.
    own = [[gap_text(clean(gap)) for gap in item.estimate.not_counted if gap not in common] for item in candidates]
    return [[clean("; ".join(item.reasons)), *gaps] for item, gaps in zip(candidates, own, strict=True)]


def _other_framework(framework: str | None, item: Recommendation, labels: Mapping[str, str]) -> str:
    """Return which framework a layout takes instead of the job's; empty where that can train so."""
    other = framework_of(framework, item.frameworks)
    return "" if other is None or other == framework else "→ " + clean(labels.get(other, other))


def _cells(item: Recommendation) -> tuple[str, ...]:
    again = {"none": _("none"), "selective": _("selective"), "full": _("full")}
    schedule = "–"
    if item.pipeline_parallel_size > 1:
        chunks = item.virtual_stages
        schedule = _("chunks ×{chunks}").format(chunks=chunks) if chunks > 1 else "1F1B"
    return (
        str(item.data_parallel_size),
        str(item.tensor_parallel_size),
        str(item.pipeline_parallel_size),
        str(item.zero_stage),
        str(item.micro_batch),
        "✓" if item.sequence_parallel else "–",
        again[item.recompute],
        schedule,
        seconds(item.estimate.step_time_s.value),
        scaled(item.estimate.tokens_per_s),
        memory_range(item.estimate.memory_per_gpu_gb),
    )
