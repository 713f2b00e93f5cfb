"""`estimate` and `recommend`: what training a model would cost, from the shell and without an inventory."""

from __future__ import annotations

from argparse import Namespace

from dttui.cli.printing import print_document
from dttui.errors import ExitCode, UsageError
from dttui.i18n import _
from dttui.planning.cost.assumptions import (
    HardwareClaim,
    Inputs,
    ModelClaim,
    UnknownAssumptionError,
    assume_hardware,
    assume_shape,
    layout_inputs,
)
from dttui.planning.cost.estimate import Estimate, estimate
from dttui.planning.cost.hardware import Hardware, gpu_table
from dttui.planning.cost.layout import Layout, faults
from dttui.planning.cost.recommend import Advice, recommend, usual_global_batch
from dttui.planning.cost.search import Wish
from dttui.planning.cost.shape import ModelShape

SHOWN = 8
"""Recommendations shown to a person; a program gets all."""


def show_estimate(options: Namespace) -> int:
    """Print what one layout costs."""
    shape, hardware, inputs = _assumed(options)
    layout, said = _layout(options)
    problems = list(faults(layout, shape, hardware.gpus, hardware.gpus_per_node))
    if problems:
        raise UsageError("; ".join(problems), _("Change the degrees, the batches, or the number of GPUs."))
    result = estimate(shape, layout, hardware, {**inputs, **layout_inputs(layout, said, hardware)})
    if options.output != "human":
        print_document(result.model_dump(mode="json"), options.output)
    else:
        print("\n".join(_estimate_lines(result)))
    return ExitCode.OK


def show_recommendation(options: Namespace) -> int:
    """Print which layouts are fastest; exit 2 where none can be."""
    shape, hardware, inputs = _assumed(options)
    wish = Wish(
        options.dp,
        options.tp,
        options.pp,
        options.virtual_stages,
        options.micro_batch,
        options.zero_stage,
        options.recompute,
        options.sequence_parallel,
        options.precision or "bf16",
    )
    batch = options.global_batch or usual_global_batch(shape, hardware)
    advice = recommend(shape, hardware, batch, inputs, wish)
    if options.output != "human":
        print_document(advice.model_dump(mode="json"), options.output)
        return ExitCode.OK if advice.candidates else ExitCode.USAGE
    if advice.problem is not None:
        raise UsageError(advice.problem)
    print("\n".join(_advice_lines(advice)))
    return ExitCode.OK


def _assumed(options: Namespace) -> tuple[ModelShape, Hardware, Inputs]:
    claim = ModelClaim(
        options.parameters, options.layers, options.hidden_size, options.heads, options.seq_length, options.vocab_size
    )
    machine = HardwareClaim(
        options.gpu,
        options.gpus,
        options.gpus_per_node,
        intra_bandwidth=options.intra_bandwidth,
        intra_latency_s=options.intra_latency,
        inter_bandwidth=options.inter_bandwidth,
        inter_latency_s=options.inter_latency,
    )
    try:
        shape, of_model = assume_shape(claim)
        hardware, of_hardware = assume_hardware(machine, gpu_table())
    except UnknownAssumptionError as fault:
        raise UsageError(str(fault)) from fault
    return shape, hardware, {**of_model, **of_hardware}


def _layout(options: Namespace) -> tuple[Layout, set[str]]:
    tensor, pipeline = options.tp or 1, options.pp or 1
    data = options.dp or max(options.gpus // (tensor * pipeline), 1)
    micro = options.micro_batch or 1
    given = {
        "data": options.dp,
        "tensor": options.tp,
        "pipeline": options.pp,
        "virtual_stages": options.virtual_stages,
        "micro_batch": options.micro_batch,
        "global_batch": options.global_batch,
        "zero_stage": options.zero_stage,
        "recompute": options.recompute,
        "sequence_parallel": options.sequence_parallel,
        "precision": options.precision,
        "gradient_bytes": options.gradient_bytes,
        "schedule": options.schedule,
        "offload": options.offload,
    }
    said = {name: value for name, value in given.items() if value is not None}
    usual = {"data": data, "global_batch": data * micro * (4 * pipeline if pipeline > 1 else 1)}
    return Layout(**{**usual, **said}), set(said)


def _estimate_lines(result: Estimate) -> list[str]:
    memory, time = result.memory_per_gpu_gb, result.step_time_s
    verdict = _("fits") if result.fits else _("does not fit")
    lines = [
        _("memory a GPU  {low}–{high} of {all} GB: {verdict}").format(
            low=f"{memory.low:.1f}", high=f"{memory.high:.1f}", all=f"{result.gpu_memory_gb:.1f}", verdict=verdict
        ),
        *_part_lines(memory.parts, "GB"),
        _("not counted: {what}").format(what="; ".join(memory.excludes)),
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
    ]
    if len(result.scaling) > 1:
        steps = ", ".join(f"{row.nodes}: {row.speed_up:.1f}× ({row.efficiency:.0%})" for row in result.scaling)
        lines.append(_("speed-up by nodes  {steps}").format(steps=steps))
    usual = [name for name, item in result.inputs.items() if item.source == "default"]
    lines.append(_("taken by default: {names}").format(names=", ".join(usual)))
    return lines


def _part_lines(parts: dict[str, float], unit: str) -> list[str]:
    names = {
        "parameters": _("parameters"),
        "gradients": _("gradients"),
        "optimizer": _("optimizer"),
        "activations": _("activations"),
        "embedding": _("embedding"),
        "logits": _("logits"),
        "recomputation": _("layer computed again"),
        "gathered": _("gathered layers"),
        "buckets": _("gradient buckets"),
        "context": _("CUDA context"),
        "compute": _("computing"),
        "recompute": _("computing again"),
        "tensor_parallel": _("tensor parallel"),
        "pipeline_transfer": _("between stages"),
        "pipeline_bubble": _("pipeline bubble"),
        "data_parallel": _("data parallel"),
    }
    total = sum(parts.values())
    return [
        f"  {_short(value):>9} {unit}  {value / total:>4.0%}  {names[name]}"
        for name, value in parts.items()
        if value > 0
    ]


def _advice_lines(advice: Advice) -> list[str]:
    lines = [f"{advice.framework}: {advice.framework_reason}", ""]
    for place, item in enumerate(advice.candidates[:SHOWN], start=1):
        degrees = f"DP {item.data_parallel_size} × TP {item.tensor_parallel_size} × PP {item.pipeline_parallel_size}"
        extras = [f"ZeRO {item.zero_stage}", _("micro-batch {size}").format(size=item.micro_batch)]
        if item.virtual_stages > 1:
            extras.append(_("{chunks} chunks").format(chunks=item.virtual_stages))
        extras.append(_("recompute {how}").format(how=item.recompute))
        cost = f"{_short(item.estimate.step_time_s.value)} s  {item.estimate.tflops_per_gpu:.0f} TFLOP/s"
        lines += [f"{place}. {degrees}  {cost}  ({', '.join(extras)})", f"   {'; '.join(item.reasons)}"]
    rest = len(advice.candidates) - SHOWN
    if rest > 0:
        lines.append(_("{count} more with --output json").format(count=rest))
    lines.append(
        _("{tried} layouts compared, {large} of them too large").format(tried=advice.tried, large=advice.too_large)
    )
    return lines


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
