"""The sections of the page about an estimate, as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content

from dttui.i18n import _
from dttui.planning import Estimate, Input, Plan, amdahl_text, input_text, layout_line, model_line
from dttui.planning.cost_text import (
    Row,
    Shrinking,
    assumption_texts,
    failure_costs,
    gap_text,
    goal_rows,
    host_memory,
    measured_text,
    memory_parts,
    memory_text,
    not_in_memory_text,
    rates,
    short,
    step_ends_text,
    step_parts,
    step_text,
)
from dttui.planning.cost_text import scaling as scaling_table
from dttui.sanitize import clean
from dttui.spec import Severity
from dttui.tui.cost_words import fit_word, memory_bar
from dttui.tui.symbols import hint
from dttui.tui.widgets.cells import bar, fit, labelled
from dttui.tui.widgets.finding_list import AXIOM

_BAR_CELLS = 10
_LINE_BAR_CELLS = 20
_MOST_NODES = 6
_NO_BREAK = "\N{NO-BREAK SPACE}"


def headline(estimate: Estimate) -> Content:
    """Return the right side of the title bar: whether it fits, and how long a step takes."""
    word = fit_word(estimate)
    return Content.assemble((str(word), f"bold ${word.colour}"), " · ", step_text(estimate))


def subject(estimate: Estimate) -> Content:
    """Return what the estimate speaks of: model, GPUs, layout."""
    return Content(f"{model_line(estimate)}\n{layout_line(estimate)}")


def memory(estimate: Estimate, shrinking: Shrinking | None = None) -> Content:
    """Return the parts of a GPU's memory, what would shrink the largest of them, and what is not counted."""
    word = fit_word(estimate)
    lines = [
        Content.assemble((memory_text(estimate), "bold"), "  ", (str(word), f"bold ${word.colour}")),
        memory_bar(estimate, _LINE_BAR_CELLS),
        *_parts(memory_parts(estimate, shrinking)),
        *_labelled(host_memory(estimate)),
    ]
    lines.append(
        Content.styled(_("the upper end adds fragmentation, a larger context and copies of the loss"), "$muted")
    )
    lines.append(Content.styled(not_in_memory_text(estimate), "$muted"))
    lines += [Content.styled(text, "$muted") for text in assumption_texts(estimate)]
    for gap in estimate.not_counted:
        lines.append(Content.assemble(("⚠ ", "$finding-warning"), clean(gap_text(gap))))
    return Content("\n").join(lines)


def time(estimate: Estimate, shrinking: Shrinking | None = None) -> Content:
    """Return the parts of a step's time, what would shrink the largest of them, and what follows for a whole run."""
    lines = [
        Content.assemble((step_text(estimate), "bold"), (f"  {step_ends_text(estimate)}", "$muted")),
        *_parts(step_parts(estimate, shrinking)),
        *_labelled([*rates(estimate), *goal_rows(estimate)]),
    ]
    return Content("\n").join(lines)


def scaling(estimate: Estimate) -> Content:
    """Return speed-up and efficiency by nodes, and what Amdahl's law makes of them."""
    table = scaling_table(estimate)
    if table is None:
        return Content.styled(_("All nodes hold one replica, or there is one node: nothing to compare."), "$muted")
    head, *told = table.lines()
    lines = [Content.styled(head, "$muted")]
    for text, row in zip(told, estimate.scaling, strict=True):
        full, empty = bar(row.efficiency, _BAR_CELLS)
        lines.append(Content.assemble(text, "  ", (full, "$gpu-busy"), (empty, "$gpu-track")))
    return Content("\n").join([*lines, Content.styled(amdahl_text(estimate) or "", "$muted")])


def failures(estimate: Estimate) -> Content:
    """Return how often failures come, what they cost, and how often to write a checkpoint."""
    note = _("The interval that loses least, by Young and Daly; failure rate of the Llama 3 training.")
    return Content("\n").join([*_labelled(failure_costs(estimate)), Content.styled(note, "$muted")])


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
    return Content("\n").join([head, *_labelled([Row(*pair) for pair in pairs])])


def rules_of_thumb(plan: Plan, estimate: Estimate) -> Content:
    """Return what tables for usual models say, with the estimate beside them."""
    rules = plan.rules_of_thumb
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
    return Content("\n").join(_labelled([Row(*pair) for pair in pairs]))


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


def inputs(estimate: Estimate, now: float) -> Content:
    """Return every number that went in, each marked by where it is from, and by how long ago where it was measured."""
    legend = [
        Content.assemble((f"{mark} ", f"${colour}"), (word, "$muted")) for mark, colour, word in _sources().values()
    ]
    groups: dict[str, list[Content]] = {}
    for name, item in estimate.inputs.items():
        prefix = name.partition(".")[0]
        group = prefix if prefix in ("model", "efficiency", "layout", "calibration") else "hardware"
        groups.setdefault(group, []).append(_input(name, item, now))
    titles = {
        "model": _("model"),
        "hardware": _("hardware"),
        "efficiency": _("reached of peaks"),
        "layout": _("layout"),
        "calibration": _("learned from jobs"),
    }
    pairs = [(titles[group], Content("   ").join(items)) for group, items in groups.items()]
    return Content("\n").join([Content("   ").join(legend), *labelled(pairs)])


def _parts(rows: Sequence[Row]) -> list[Content]:
    """Return a line a part: name, bar, share, value."""
    width = max(cell_len(row.label) for row in rows)
    figures = max(cell_len(row.value) for row in rows)
    lines = []
    for row in rows:
        full, empty = bar(row.share, _BAR_CELLS)
        cells = f"  {row.share:>4.0%}  " + fit(row.value, figures, right=True)
        lines.append(
            Content.assemble((fit(row.label, width), "$muted"), "  ", (full, "$gpu-busy"), (empty, "$gpu-track"), cells)
        )
        lines += [Content.assemble((" →  ", "$primary"), text) for text in row.advice]
    return lines


def _labelled(rows: Sequence[Row]) -> list[Content]:
    return labelled([(row.label, Content(clean(row.value))) for row in rows])


def _sources() -> dict[str, tuple[str, str, str]]:
    """Return mark, colour and word of where a number is from."""
    return {
        "measured": ("●", "success", _("measured")),
        "declared": ("◆", "primary", _("declared or from a data sheet")),
        "default": ("○", "muted", _("taken by default")),
    }


def _input(name: str, item: Input, now: float) -> Content:
    """Return one input, in one piece that no line break parts."""
    mark, colour, _word = _sources()[item.source]
    age = f" ({measured_text(item, now)})" if item.measured_at is not None else ""
    text = f"{input_text(name, item.value)}{age}".replace(" ", _NO_BREAK)
    return Content.assemble((f"{mark}{_NO_BREAK}", f"${colour}"), text)
