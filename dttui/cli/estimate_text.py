"""Estimates and recommendations as lines for a person."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml

from dttui.i18n import _, ngettext
from dttui.planning import (
    Advice,
    CollectiveChoice,
    Estimate,
    amdahl_text,
    common_gaps,
    part_names,
    rule_text,
    timed_text,
)

SHOWN = 8
"""Recommendations shown to a person; a program gets all."""


def estimate_lines(result: Estimate) -> list[str]:
    """Return what one layout costs."""
    memory, time = result.memory_per_gpu_gb, result.step_time_s
    may_fit = memory.low <= result.gpu_memory_gb
    word = _("fits, barely") if result.is_tight else _("fits")
    verdict = word if result.fits else _("may not fit") if may_fit else _("does not fit")
    lines = [
        _("memory a GPU  {low}–{high} of {all} GB: {verdict}").format(
            low=f"{memory.low:.1f}", high=f"{memory.high:.1f}", all=f"{result.gpu_memory_gb:.1f}", verdict=verdict
        ),
        *_part_lines(memory.parts, "GB"),
        _("not counted: {what}").format(what="; ".join(memory.excludes)),
        *gap_lines(result),
        "",
        _("a step        {value} s, {low}–{high}").format(
            value=_short(time.value), low=_short(time.low), high=_short(time.high)
        ),
        *_part_lines(time.parts, "s"),
        "",
        _("{tokens} tokens/s · {samples} samples/s · {tflops} TFLOP/s a GPU · {mfu} of the peak").format(
            tokens=f"{result.tokens_per_s:,.0f}",
            samples=_short(result.samples_per_s),
            tflops=f"{result.tflops_per_gpu:.0f}",
            mfu=f"{result.mfu:.1%}",
        ),
        _("a failure every {hours} h; a checkpoint every {minutes} min loses least, {share} of the time").format(
            hours=f"{result.failures.hours_between_failures:,.0f}",
            minutes=f"{result.failures.checkpoint_interval_s / 60:.0f}",
            share=f"{result.failures.lost_share:.1%}",
        ),
        *_scaling_lines(result),
        *(_collective_line(choice, result) for choice in result.collectives),
    ]
    usual = {name: item.value for name, item in result.inputs.items() if item.source == "default"}
    told = _told_defaults(usual)
    rest = [name for name in usual if name not in told]
    if usual:
        lines.append(_("taken by default: {names}").format(names=", ".join([*told.values(), *rest])))
    return lines


def gap_lines(result: Estimate) -> list[str]:
    """Return what an estimate takes for granted, and what the job says that it does not count."""
    return [*(_("assumed: {what}").format(what=item) for item in result.assumes), *_not_counted(result.not_counted)]


def _not_counted(gaps: Iterable[str]) -> list[str]:
    return [_("not counted of the job: {what}").format(what=item) for item in gaps]


def _told_defaults(usual: Mapping[str, Any]) -> dict[str, str]:
    """Return the assumptions that decide most, by input, with their values."""
    words: dict[str, Callable[[Any], str]] = {
        "intra_bandwidth": lambda rate: _("inside a node {rate} GB/s a GPU").format(rate=f"{rate / 1e9:g}"),
        "inter_bandwidth": lambda rate: _("inter-node {rate} GB/s a GPU").format(rate=f"{rate / 1e9:g}"),
        "layout.global_batch": lambda batch: _("global batch {batch}").format(batch=f"{batch:,}"),
        "layout.micro_batch": lambda size: _("micro-batch {size}").format(size=size),
        "model.layers": lambda count: ngettext("{count} layer", "{count} layers", count).format(count=count),
        "model.hidden_size": lambda size: _("hidden {size}").format(size=size),
        "model.heads": lambda count: _("{count} attention heads").format(count=count),
        "model.seq_length": lambda count: _("{count} tokens a sequence").format(count=f"{count:,}"),
        "model.vocab_size": lambda count: _("vocabulary of {count}").format(count=f"{count:,}"),
        "layout.precision": str,
    }
    return {name: word(usual[name]) for name, word in words.items() if name in usual}


def advice_lines(advice: Advice, gpus: int, gpu: str, global_batch: int, *, batch_is_given: bool) -> list[str]:
    """Return what was searched for, and the fastest layouts with their reasons."""
    batch = _("global batch {batch}") if batch_is_given else _("global batch {batch} (taken by default)")
    lines = [
        f"{gpus} × {gpu} · {batch.format(batch=f'{global_batch:,}')}",
        _("by size alone, a usual choice is {framework}: {reason}").format(
            framework=advice.framework, reason=advice.framework_reason
        ),
        *([advice.guide] if advice.guide else []),
        "",
    ]
    shown = advice.candidates[:SHOWN]
    common = common_gaps(shown)
    for place, item in enumerate(shown, start=1):
        degrees = f"DP {item.data_parallel_size} × TP {item.tensor_parallel_size} × PP {item.pipeline_parallel_size}"
        extras = [f"ZeRO {item.zero_stage}", _("micro-batch {size}").format(size=item.micro_batch)]
        if item.virtual_stages > 1:
            extras.append(_("{chunks} chunks").format(chunks=item.virtual_stages))
        extras.append(_("recompute {how}").format(how=item.recompute))
        if item.sequence_parallel:
            extras.append("SP")
        extras.append(_("global batch {batch}").format(batch=f"{item.global_batch:,}"))
        rate = _("{tokens} tokens/s").format(tokens=f"{item.estimate.tokens_per_s:,.0f}")
        cost = f"{_short(item.estimate.step_time_s.value)} s  {rate}  {item.estimate.tflops_per_gpu:.0f} TFLOP/s"
        lines += [f"{place}. {degrees}  {cost}  ({', '.join(extras)})", f"   {'; '.join(item.reasons)}"]
        # Of a row that takes another framework, that one's own.
        lines += [f"   {line}" for line in _not_counted(gap for gap in item.estimate.not_counted if gap not in common)]
    if shown:
        lines += gap_lines(shown[0].estimate.model_copy(update={"not_counted": common}))
    rest = len(advice.candidates) - SHOWN
    if rest > 0:
        lines.append(_("{count} more with --output json").format(count=rest))
    lines.append(
        _("{tried} layouts compared, {large} of them too large").format(tried=advice.tried, large=advice.too_large)
    )
    return lines


def edit_lines(edit: dict[str, Any], framework_problem: str | None) -> list[str]:
    """Return what to write into the job file for the first recommendation, and what its framework lacks for it."""
    text = yaml.safe_dump(edit, sort_keys=False, default_flow_style=None)
    told = _("To take the first, write this under `distributed_training`:")
    return ["", told, *(f"  {line}" for line in text.splitlines()), *([framework_problem] if framework_problem else [])]


def _scaling_lines(result: Estimate) -> list[str]:
    lines = []
    if len(result.scaling) > 1:
        steps = ", ".join(f"{row.nodes}: {row.speed_up:.1f}× ({row.efficiency:.0%})" for row in result.scaling)
        lines.append(_("speed-up by nodes  {steps}").format(steps=steps))
    law = amdahl_text(result)
    return lines if law is None else [*lines, law]


def _collective_line(choice: CollectiveChoice, result: Estimate) -> str:
    name = {"all_reduce": _("all-reduce"), "broadcast": _("broadcast")}[choice.collective]
    text = _("{collective} of {size} GB over {ranks} ranks: {algorithm}, buffers of {buffer} MiB ({timed})")
    told = text.format(
        collective=name,
        size=f"{choice.size_bytes / 1e9:.3g}",
        ranks=choice.ranks,
        algorithm=choice.algorithm,
        buffer=choice.buffer_bytes >> 20,
        timed=timed_text(choice, lambda value: f"{_short(value)} s"),
    )
    nodes = -(-int(result.inputs["gpus"].value) // int(result.inputs["gpus_per_node"].value))
    rule = rule_text(choice, nodes)
    return f"{told} · {rule}" if rule is not None else told


def _part_lines(parts: dict[str, float], unit: str) -> list[str]:
    names = part_names()
    total = sum(parts.values())
    return [
        f"  {_short(value):>9} {unit}  {value / total:>4.0%}  {names[name]}"
        for name, value in parts.items()
        if value > 0
    ]


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
