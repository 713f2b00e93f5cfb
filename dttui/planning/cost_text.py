"""What an estimate says, in words and figures for a person. The terminal and the screen draw the same rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from dttui.i18n import _
from dttui.planning.cost.assumptions import Input
from dttui.planning.cost.collectives import CollectiveChoice, rule_text, timed_text
from dttui.planning.cost.estimate import Estimate, MemoryRange, part_names
from dttui.planning.cost.links import age_text
from dttui.spec.known_models import all_models
from dttui.spec.problems import text_width
from dttui.words import duration, parameters

Shrinking = Mapping[tuple[str, str], Sequence[str]]
"""What would shrink a part, in words, by `memory` or `time` and the part's name in an estimate."""
LARGEST = 3
"""Parts of which it is told what would shrink them."""
LEAST_SHARE = 0.005
"""Of parts that have a line of their own."""


class Fit(Enum):
    """Whether a model fits the memory of its GPUs."""

    FITS = "fits"
    BARELY = "barely"
    """With little to spare."""
    PERHAPS = "perhaps"
    """At the lower end of what it needs, not at the upper."""
    NOT = "not"


@dataclass(frozen=True)
class Row:
    """A figure and what it is of."""

    label: str
    value: str
    share: float = 0.0
    """Of all parts together, 0 to 1; for a part alone."""
    advice: Sequence[str] = ()
    """What would shrink it; of the largest parts alone."""


@dataclass(frozen=True)
class CostTable:
    """Cells in columns, the same wherever they are drawn."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: frozenset[int] = frozenset()
    """Columns that begin at the left; numbers end at the right."""

    def lines(self, gap: str = "  ") -> list[str]:
        """Return the head and a line a row, in columns as wide as what is in them, with `gap` between two."""
        told = [self.head, *self.rows]
        widths = [max(map(text_width, column)) for column in zip(*told, strict=True)]
        return [
            gap.join(
                cell + _blank(width, cell) if column in self.words else _blank(width, cell) + cell
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in told
        ]


def fit(estimate: Estimate) -> Fit:
    """Return whether a model fits: by the upper end of what it needs, then by the lower."""
    memory, room = estimate.memory_per_gpu_gb, estimate.gpu_memory_gb
    if estimate.is_tight:
        return Fit.BARELY
    if memory.high <= room:
        return Fit.FITS
    return Fit.PERHAPS if memory.low <= room else Fit.NOT


def fit_text(found: Fit) -> str:
    """Return that in words."""
    return {
        Fit.FITS: _("fits"),
        Fit.BARELY: _("fits, barely"),
        Fit.PERHAPS: _("may not fit"),
        Fit.NOT: _("does not fit"),
    }[found]


def memory_text(estimate: Estimate) -> str:
    """Return what a GPU needs of what it has, GB: `31–36 of 86 GB`."""
    need = memory_range(estimate.memory_per_gpu_gb)
    return _("{need} of {room} GB").format(need=need, room=short(estimate.gpu_memory_gb))


def memory_range(memory: MemoryRange) -> str:
    """Return a range in GB, `31–36`; one number where both ends read the same."""
    ends = dict.fromkeys((short(memory.low), short(memory.high)))
    return "–".join(ends)


def memory_parts(estimate: Estimate, shrinking: Shrinking | None = None) -> list[Row]:
    """Return the parts of a GPU's memory, the largest first, small ones as one."""

    def written(size: float) -> str:
        return f"{size:.2f} GB" if size < 10 else f"{size:.1f} GB"

    return _parts(estimate.memory_per_gpu_gb.parts, written, "memory", shrinking)


def host_memory(estimate: Estimate) -> list[Row]:
    """Return what lies in the memory of the host, where something does."""
    size = estimate.host_memory_per_gpu_gb
    return [Row(_("in host memory"), f"{short(size)} GB")] if size else []


def not_in_memory_text(estimate: Estimate) -> str:
    """Return what of the memory no estimate counts."""
    return _("not counted: {what}").format(what="; ".join(estimate.memory_per_gpu_gb.excludes))


def assumption_texts(estimate: Estimate) -> list[str]:
    """Return what is taken for granted that decides much."""
    return [_("assumed: {what}").format(what=item) for item in estimate.assumes]


def gap_text(gap: str) -> str:
    """Return what the job says that an estimate does not count."""
    return _("not counted of the job: {what}").format(what=gap)


def step_text(estimate: Estimate) -> str:
    """Return the time of a step and how sure it is: `412 ms ±15%`."""
    step = estimate.step_time_s
    return f"{seconds(step.value)} ±{(step.high - step.low) / 2 / step.value:.0%}"


def step_ends_text(estimate: Estimate) -> str:
    """Return both ends of the time of a step."""
    step = estimate.step_time_s
    return _("{low} to {high}").format(low=seconds(step.low), high=seconds(step.high))


def step_parts(estimate: Estimate, shrinking: Shrinking | None = None) -> list[Row]:
    """Return the parts of a step's time, the largest first, small ones as one."""
    return _parts(estimate.step_time_s.parts, seconds, "time", shrinking)


def goal_rows(estimate: Estimate) -> list[Row]:
    """Return tokens a day, how long it takes to so many tokens, and the GPUs' energy till then."""
    goal = estimate.goal
    if goal is None:
        return []
    hours = _("{span} ({hours} h)").format(span=duration(goal.hours * 3600), hours=short(goal.hours))
    has_images = is_of_images(estimate)
    if not goal.tokens_are_given:
        why = _("20 tokens a parameter, as Chinchilla")
        if has_images:
            why = _("90 epochs of ImageNet")
        elif "model.lora" in estimate.inputs or not estimate.inputs["model.causal"].value:
            why = _("as a measure: how many it takes is for the data to say")
        elif "model.experts" in estimate.inputs:
            why = _("20 tokens a parameter that each goes through")
        hours += " · " + why
    count = parameters(goal.tokens, 3)
    rows = [
        Row(_("images a day") if has_images else _("tokens a day"), parameters(goal.tokens_per_day, 3)),
        Row((_("{tokens} images") if has_images else _("{tokens} tokens")).format(tokens=count), hours),
    ]
    if goal.energy_kwh is not None:
        text = _("{energy} of the GPUs alone, at full board power")
        rows.append(Row(_("energy till then"), text.format(energy=_energy(goal.energy_kwh))))
    return rows


def is_of_images(estimate: Estimate) -> bool:
    """Whether the model is a network of convolutions, whose tokens are images."""
    return "model.operations" in estimate.inputs


def _energy(kwh: float) -> str:
    for scale, unit in ((1e6, "GWh"), (1e3, "MWh")):
        if kwh >= scale:
            return f"{_three_digits(kwh / scale)} {unit}"
    return f"{_three_digits(kwh)} kWh"


def rates(estimate: Estimate) -> list[Row]:
    """Return the throughput, and how much of a step is communication."""
    throughput = _("{tokens} tokens/s · {samples} samples/s")
    if is_of_images(estimate):
        throughput = _("{samples} images/s")
    each = _("{tflops} TFLOP/s · {mfu} of the peak")
    if estimate.step_time_s.parts.get("recompute"):
        each = _("{tflops} TFLOP/s with what is computed again · {mfu} of the peak without")
    return [
        Row(
            _("throughput"),
            throughput.format(tokens=f"{estimate.tokens_per_s:,.0f}", samples=short(estimate.samples_per_s)),
        ),
        Row(_("each GPU"), each.format(tflops=short(estimate.tflops_per_gpu), mfu=f"{estimate.mfu:.1%}")),
        Row(_("communication"), _("{share} of the step").format(share=f"{estimate.communication_share:.0%}")),
    ]


def speed_up_text(estimate: Estimate) -> str | None:
    """Return the speed-up by all nodes, what it would be at best, and the share of that; `None` for a single node."""
    if len(estimate.scaling) < 2:
        return None
    last = estimate.scaling[-1]
    return _("{speed_up}× of {ideal} · efficiency {share}").format(
        speed_up=f"{last.speed_up:.1f}" if last.speed_up >= 1 else f"{last.speed_up:.2f}",
        ideal=f"{last.speed_up / last.efficiency:.3g}",
        share=f"{last.efficiency:.0%}",
    )


def scaling(estimate: Estimate) -> CostTable | None:
    """Return the speed-up by nodes, a row for each of `estimate.scaling`; `None` where there is nothing to compare."""
    if len(estimate.scaling) < 2:
        return None
    rows = [(str(row.nodes), f"{row.speed_up:.2f}×", f"{row.efficiency:.0%}") for row in estimate.scaling]
    return CostTable((_("nodes"), _("speed-up"), _("efficiency")), rows)


def failure_costs(estimate: Estimate) -> list[Row]:
    """Return how often failures come, what they cost, and how often to write a checkpoint."""
    cost = estimate.failures
    lost = _("{share} by writing, doing again and restarting").format(share=f"{cost.lost_share:.1%}")
    return [
        Row(_("a failure every"), duration(cost.hours_between_failures * 3600)),
        Row(_("checkpoint every"), duration(cost.checkpoint_interval_s)),
        Row(_("writing one takes"), seconds(cost.checkpoint_s)),
        Row(_("time lost"), lost),
    ]


def choice_text(choice: CollectiveChoice) -> str:
    """Return which algorithm a collective gets, and what each would take."""
    name = {"all_reduce": _("all-reduce"), "broadcast": _("broadcast")}[choice.collective]
    text = _("{collective} of {size} over {ranks} ranks: {algorithm} with buffers of {buffer} MiB; {timed}")
    size = choice.size_bytes
    return text.format(
        collective=name,
        size=f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB",
        ranks=choice.ranks,
        algorithm=choice.algorithm,
        buffer=choice.buffer_bytes >> 20,
        timed=timed_text(choice, seconds),
    )


def choice_texts(estimate: Estimate) -> list[str]:
    """Return for each collective of an estimate what it gets, and what the number of nodes alone would choose."""
    nodes = int(estimate.inputs["nodes"].value)
    told = [(choice_text(choice), rule_text(choice, nodes)) for choice in estimate.collectives]
    return [text if rule is None else f"{text} · {rule}" for text, rule in told]


def measured_text(item: Input, now: float) -> str:
    """Return how long before `now`, in seconds since the epoch, an input was measured, where that is known."""
    return age_text(item.measured_at, now)


def seconds(value: float) -> str:
    """Return a duration in the unit that suits it: `35 µs`, `412 ms`, `18.1 s`, `1,204 s`."""
    for limit, scale, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if value < limit:
            return f"{_three_digits(value * scale)} {unit}"
    return f"{_three_digits(value)} s"


def short(value: float) -> str:
    """Return a number in two or three digits: `7.3`, `31`, `1,204`."""
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}"


def known_models() -> CostTable:
    """Return a row for each model that is known by its name."""
    head = (_("model"), _("parameters"), _("used by a token"), _("layers"), _("width"), _("sequence"))
    rows = [
        (
            model.name,
            parameters(model.parameters, 3),
            parameters(model.active or model.parameters, 3),
            f"{model.layers}",
            f"{model.hidden_size:,}",
            f"{model.seq_length:,}",
        )
        for model in all_models()
    ]
    return CostTable(head, rows, frozenset({0}))


def _parts(
    parts: Mapping[str, float], written: Callable[[float], str], of: str, shrinking: Shrinking | None
) -> list[Row]:
    names, advice = part_names(), shrinking or {}
    total = sum(parts.values())
    ranked = sorted(parts.items(), key=lambda item: item[1], reverse=True)
    rows = [
        Row(names.get(name, name), written(value), value / total, advice.get((of, name), ()))
        for name, value in ranked
        if value >= LEAST_SHARE * total
    ]
    if shrinking is not None:
        # What remains to be said of a part that no one change shrinks; the context is what it is.
        none = _("no single change of the layout helps")
        rows[:LARGEST] = [
            row if row.advice or row.label == names["context"] else replace(row, advice=(none,))
            for row in rows[:LARGEST]
        ]
    rest = [value for _name, value in ranked if 0 < value < LEAST_SHARE * total]
    return [*rows, Row(_("all else"), written(sum(rest)), sum(rest) / total)] if rest else rows


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _blank(width: int, text: str) -> str:
    return " " * (width - text_width(text))
