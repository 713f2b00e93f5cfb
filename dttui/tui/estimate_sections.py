"""The sections of the page about an estimate, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.cells import cell_len
from textual.content import Content

from dttui.i18n import _
from dttui.planning import Estimate, Input, Plan, RulesOfThumb, amdahl_text, part_names
from dttui.sanitize import clean
from dttui.spec import Severity
from dttui.tui.cost_words import memory_bar, memory_text, seconds, short, step_text, verdict
from dttui.tui.widgets.cells import bar, fit, labelled
from dttui.tui.widgets.finding_list import AXIOM
from dttui.tui.words import duration, gigabytes, hint

_BAR_CELLS = 10
_LINE_BAR_CELLS = 20
_MOST_NODES = 6
_NO_BREAK = "\N{NO-BREAK SPACE}"


def headline(estimate: Estimate) -> Content:
    """Return the right side of the title bar: whether it fits, and how long a step takes."""
    word = verdict(estimate)
    return Content.assemble((str(word), f"bold ${word.colour}"), " · ", step_text(estimate))


def memory(estimate: Estimate) -> Content:
    """Return the parts of a GPU's memory, and what is not counted."""
    word = verdict(estimate)
    lines = [
        Content.assemble((memory_text(estimate), "bold"), "  ", (str(word), f"bold ${word.colour}")),
        memory_bar(estimate, _LINE_BAR_CELLS),
        *_parts(estimate.memory_per_gpu_gb.parts, lambda size: f"{size:.2f} GB" if size < 10 else f"{size:.1f} GB"),
    ]
    if estimate.host_memory_per_gpu_gb:
        lines.append(_labelled([(_("in host memory"), f"{short(estimate.host_memory_per_gpu_gb)} GB")])[0])
    lines.append(
        Content.styled(_("the upper end adds fragmentation, a larger context and copies of the loss"), "$muted")
    )
    lines.append(
        Content.styled(_("not counted: {what}").format(what="; ".join(estimate.memory_per_gpu_gb.excludes)), "$muted")
    )
    lines += [Content.styled(_("assumed: {what}").format(what=item), "$muted") for item in estimate.assumes]
    for item in estimate.not_counted:
        told = _("not counted of the job: {what}").format(what=clean(item))
        lines.append(Content.assemble(("⚠ ", "$finding-warning"), told))
    return Content("\n").join(lines)


def time(estimate: Estimate) -> Content:
    """Return the parts of a step's time, and the throughput that follows."""
    step = estimate.step_time_s
    ends = _("{low} to {high}").format(low=seconds(step.low), high=seconds(step.high))
    lines = [
        Content.assemble((step_text(estimate), "bold"), (f"  {ends}", "$muted")),
        *_parts(step.parts, seconds),
        *_labelled(
            [
                (
                    _("throughput"),
                    _("{tokens} tokens/s · {samples} samples/s").format(
                        tokens=f"{estimate.tokens_per_s:,.0f}", samples=short(estimate.samples_per_s)
                    ),
                ),
                (
                    _("each GPU"),
                    _("{tflops} TFLOP/s · {mfu} of the peak").format(
                        tflops=short(estimate.tflops_per_gpu), mfu=f"{estimate.mfu:.1%}"
                    ),
                ),
                (_("communication"), _("{share} of the step").format(share=f"{estimate.communication_share:.0%}")),
            ]
        ),
    ]
    return Content("\n").join(lines)


def scaling(estimate: Estimate) -> Content:
    """Return speed-up and efficiency by nodes, and what Amdahl's law makes of them."""
    rows = estimate.scaling
    if len(rows) < 2:
        return Content.styled(_("All nodes hold one replica, or there is one node: nothing to compare."), "$muted")
    head = (_("nodes"), _("speed-up"), _("efficiency"))
    cells = [head, *((str(row.nodes), f"{row.speed_up:.2f}×", f"{row.efficiency:.0%}") for row in rows)]
    widths = [max(cell_len(line[column]) for line in cells) for column in range(len(head))]
    told = ["  ".join(fit(cell, width, right=True) for cell, width in zip(line, widths, strict=True)) for line in cells]
    lines = [Content.styled(told[0], "$muted")]
    for text, row in zip(told[1:], rows, strict=True):
        full, empty = bar(row.efficiency, _BAR_CELLS)
        lines.append(Content.assemble(text, "  ", (full, "$gpu-busy"), (empty, "$gpu-track")))
    return Content("\n").join([*lines, Content.styled(amdahl_text(estimate) or "", "$muted")])


def failures(estimate: Estimate) -> Content:
    """Return how often failures come, what they cost, and how often to write a checkpoint."""
    cost = estimate.failures
    pairs = [
        (_("a failure every"), duration(cost.hours_between_failures * 3600)),
        (_("checkpoint every"), duration(cost.checkpoint_interval_s)),
        (_("writing one takes"), seconds(cost.checkpoint_s)),
        (_("time lost"), _("{share} by writing, doing again and restarting").format(share=f"{cost.lost_share:.1%}")),
    ]
    note = _("The interval that loses least, by Young and Daly; failure rate of the Llama 3 training.")
    return Content("\n").join([*_labelled(pairs), Content.styled(note, "$muted")])


def formal(plan: Plan) -> Content:
    """Return the job as S = (N, M, C, D), P and C."""
    if plan.formal is None:
        return Content("–")
    system, parallelism, pattern = plan.formal.system, plan.formal.parallelism, plan.formal.communication
    nodes = ", ".join(system.nodes[:_MOST_NODES])
    if len(system.nodes) > _MOST_NODES:
        nodes += " " + _("… and {count} more").format(count=len(system.nodes) - _MOST_NODES)
    degrees = " × ".join(f"{name} {value}" for name, value in parallelism.strategy.items())
    link = f"{pattern.bandwidth / 1e9:.3g} GB/s" if pattern.bandwidth is not None else None
    pairs = [
        (_("N nodes"), nodes),
        (_("M models"), ", ".join(system.models)),
        (_("C collectives"), ", ".join(system.communications)),
        (_("D data"), ", ".join(system.datasets) or "–"),
        (_("P parallelism"), " · ".join(item for item in (parallelism.type, degrees, parallelism.topology) if item)),
        (_("C pattern"), " · ".join(item for item in (pattern.pattern, pattern.protocol, link) if item)),
    ]
    head = Content.styled(
        "S = (N, M, C, D) · P = (type, strategy, topology) · C = (pattern, protocol, bandwidth)", "$muted"
    )
    return Content("\n").join([head, *_labelled(pairs)])


def rules_of_thumb(rules: RulesOfThumb | None, estimate: Estimate) -> Content:
    """Return what tables for usual models say, with the estimate beside them."""
    if rules is None:
        return Content("–")
    parts = estimate.memory_per_gpu_gb.parts
    states = sum(parts.get(name, 0.0) for name in ("parameters", "gradients", "optimizer"))
    beyond = _("beyond the table")
    states_text = _("{rule} GB (estimate: {own} GB)").format(rule=short(rules.memory_gb), own=short(states))
    pairs = [
        (_("over one GPU"), f"{rules.speed_up:.1f}×" if rules.speed_up is not None else beyond),
        (_("over one node"), f"{rules.nodes_speed_up:.1f}×" if rules.nodes_speed_up is not None else beyond),
        (_("model states"), states_text),
    ]
    return Content("\n").join(_labelled(pairs))


def axioms(plan: Plan) -> Content:
    """Return the four axioms with their numbers."""
    found = [item for item in plan.findings if item.code.startswith(AXIOM)]
    if not found:
        return Content.styled(_("They speak of several nodes, and this job has one."), "$muted")
    lines = []
    for item in found:
        holds = item.severity is Severity.INFO
        mark = ("✓ ", "bold $success") if holds else ("⚠ ", "bold $finding-warning")
        lines.append(Content.assemble(mark, clean(item.message), (hint(item.hint), "$muted")))
    return Content("\n").join(lines)


def inputs(estimate: Estimate) -> Content:
    """Return every number that went in, each marked by where it is from."""
    legend = [
        Content.assemble((f"{mark} ", f"${colour}"), (word, "$muted")) for mark, colour, word in _sources().values()
    ]
    groups: dict[str, list[Content]] = {}
    for name, item in estimate.inputs.items():
        group, own = _place(name)
        groups.setdefault(group, []).append(_input(own, item))
    titles = {
        "model": _("model"),
        "hardware": _("hardware"),
        "efficiency": _("efficiency"),
        "layout": _("layout"),
    }
    pairs = [(titles[group], Content("   ").join(items)) for group, items in groups.items()]
    return Content("\n").join([Content("   ").join(legend), *labelled(pairs)])


def _parts(parts: Mapping[str, float], written: Callable[[float], str]) -> list[Content]:
    """Return a line a part that is not nothing: name, bar, share, value."""
    names = part_names()
    total = sum(parts.values())
    shown = [(names.get(name, name), value) for name, value in parts.items() if value > 0]
    width = max(cell_len(name) for name, _value in shown)
    figures = max(cell_len(written(value)) for _name, value in shown)
    lines = []
    for name, value in shown:
        full, empty = bar(value / total, _BAR_CELLS)
        cells = f"  {value / total:>4.0%}  " + fit(written(value), figures, right=True)
        lines.append(
            Content.assemble((fit(name, width), "$muted"), "  ", (full, "$gpu-busy"), (empty, "$gpu-track"), cells)
        )
    return lines


def _labelled(pairs: Sequence[tuple[str, str]]) -> list[Content]:
    return labelled([(label, Content(clean(value))) for label, value in pairs])


def _place(name: str) -> tuple[str, str]:
    """Return the group of an input and its name there."""
    group, dot, own = name.partition(".")
    return (group, own) if dot and group in ("model", "efficiency", "layout") else ("hardware", name)


def _sources() -> dict[str, tuple[str, str, str]]:
    """Return mark, colour and word of where a number is from."""
    return {
        "measured": ("●", "success", _("measured")),
        "declared": ("◆", "primary", _("declared or from a data sheet")),
        "default": ("○", "muted", _("taken by default")),
    }


def _input(name: str, item: Input) -> Content:
    """Return one input, in one piece that no line break parts."""
    mark, colour, _word = _sources()[item.source]
    text = f"{name} {clean(_value(name, item.value))}".replace(" ", _NO_BREAK)
    return Content.assemble((f"{mark}{_NO_BREAK}", f"${colour}"), text)


def _value(name: str, value: float | int | str | bool) -> str:
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, str):
        return value
    if name.endswith("memory_bytes"):
        return gigabytes(int(value))
    if name.endswith("bandwidth"):
        return f"{value / 1e9:.4g} GB/s"
    if name.endswith("_s"):
        return seconds(value)
    if name.endswith("flops"):
        return f"{value / 1e12:.4g} TFLOP/s"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if value >= 100 else f"{value:.4g}"
