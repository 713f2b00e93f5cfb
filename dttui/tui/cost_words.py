"""What a draft costs, as a person reads it: whether it fits, times, sizes, degrees, and why there is no estimate."""

from __future__ import annotations

from textual.content import Content

from dttui.compose import Degrees, DraftCost, NoEstimate
from dttui.i18n import _, ngettext
from dttui.planning import Estimate, MemoryRange
from dttui.sanitize import clean
from dttui.spec import Model
from dttui.tui.widgets.cells import bar
from dttui.tui.words import StateWord, hint

_PARAMETERS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
_BAR_CELLS = 6
_PENDING = "…"


def cost_figures(cost: DraftCost | None, *, is_fresh: bool) -> list[tuple[str, Content]]:
    """Return the lines of the summary, as label and value.

    Args:
        cost: of the draft; `None` before it is known.
        is_fresh: whether it is of what is ticked now; a number that is not is never shown.
    """
    if cost is None:
        return []
    figures = _estimate_figures(cost.estimate) if cost.estimate is not None else []
    if cost.degrees is not None:
        figures.append((_("degrees"), Content(degrees_text(cost.degrees))))
    if is_fresh:
        return figures
    return [(label, Content.styled(_PENDING, "$muted")) for label, _value in figures]


def absence_text(absence: NoEstimate) -> Content:
    """Return why there is no estimate, and what to do."""
    remedy = _("Press w to give it: its number of parameters is enough.") if absence.lacks_model else absence.remedy
    return Content.assemble(("i ", "bold $finding-info"), clean(absence.reason), (hint(remedy), "$muted"))


def degrees_text(degrees: Degrees) -> str:
    """Return how the ranks are shared out: `DP 14 · TP 1 · PP 1 · ZeRO 1`."""
    told = [f"DP {degrees.data}", f"TP {degrees.tensor}", f"PP {degrees.pipeline}"]
    if degrees.zero_stage is not None:
        told.append(f"ZeRO {degrees.zero_stage}")
    return " · ".join(told)


def model_text(model: Model | None) -> str | None:
    """Return a model in a few words, `7B · 32 layers · bf16`; `None` where nothing is said of it."""
    if model is None:
        return None
    told = [clean(model.name)] if model.name else []
    if model.parameters:
        told.append(parameters(model.parameters))
    if model.layers:
        told.append(ngettext("{count} layer", "{count} layers", model.layers).format(count=model.layers))
    if model.hidden_size:
        told.append(_("hidden {size}").format(size=model.hidden_size))
    if model.precision:
        told.append(model.precision)
    return " · ".join(told) or None


def _estimate_figures(estimate: Estimate) -> list[tuple[str, Content]]:
    word = verdict(estimate)
    pieces: list[Content | tuple[str, str] | str] = [memory_text(estimate), " "]
    if word.colour != "finding-error":
        pieces += [memory_bar(estimate, _BAR_CELLS), " "]
    pieces.append((word.unbroken, f"bold ${word.colour}"))
    figures = [(_("memory/GPU"), Content.assemble(*pieces)), (_("step time"), Content(step_text(estimate)))]
    figures.append((_("assumed"), Content.styled(_assumed(estimate), "$muted")))
    speed_up = speed_up_text(estimate)
    if speed_up is not None:
        figures.append((_("speed-up"), Content(speed_up)))
    return figures


def _assumed(estimate: Estimate) -> str:
    """Return in a few words what the figures rest upon; `estimate` has it whole."""
    gaps = len(estimate.not_counted)
    told = ngettext("{count} option not counted", "{count} options not counted", gaps).format(count=gaps)
    return " · ".join([_("attention keeps s²"), *([told] if gaps else [])])


def verdict(estimate: Estimate) -> StateWord:
    """Return whether a model fits its GPUs: by the upper end of what it needs, then by the lower."""
    memory, room = estimate.memory_per_gpu_gb, estimate.gpu_memory_gb
    if estimate.is_tight:
        return StateWord("⚠", _("fits, barely"), "finding-warning")
    if memory.high <= room:
        return StateWord("✓", _("fits"), "state-succeeded")
    if memory.low <= room:
        return StateWord("⚠", _("may not fit"), "finding-warning")
    return StateWord("✗", _("does not fit"), "finding-error")


def memory_text(estimate: Estimate) -> str:
    """Return what a GPU needs of what it has, GB: `31–36 of 86 GB`."""
    need = memory_range(estimate.memory_per_gpu_gb)
    return _("{need} of {room} GB").format(need=need, room=short(estimate.gpu_memory_gb))


def memory_range(memory: MemoryRange) -> str:
    """Return a range in GB, `31–36`; one number where both ends read the same."""
    ends = dict.fromkeys((short(memory.low), short(memory.high)))
    return "–".join(ends)


def memory_bar(estimate: Estimate, width: int) -> Content:
    """Return how much of a GPU is full at the upper end."""
    full, empty = bar(estimate.memory_per_gpu_gb.high / estimate.gpu_memory_gb, width)
    return Content.assemble((full, f"${verdict(estimate).colour}"), (empty, "$gpu-track"))


def step_text(estimate: Estimate) -> str:
    """Return the time of a step and how sure it is: `412 ms ±15%`."""
    step = estimate.step_time_s
    return f"{seconds(step.value)} ±{(step.high - step.low) / 2 / step.value:.0%}"


def speed_up_text(estimate: Estimate) -> str | None:
    """Return the speed-up by all nodes, and what it would be at best: `5.9× of 7`; `None` for a single node."""
    if len(estimate.scaling) < 2:
        return None
    last = estimate.scaling[-1]
    return _("{speed_up}× of {ideal}").format(
        speed_up=f"{last.speed_up:.1f}" if last.speed_up >= 1 else f"{last.speed_up:.2f}",
        ideal=f"{last.speed_up / last.efficiency:.3g}",
    )


def seconds(value: float) -> str:
    """Return a duration in the unit that suits it: `35 µs`, `412 ms`, `18.1 s`, `1,204 s`."""
    for limit, scale, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if value < limit:
            return f"{_three_digits(value * scale)} {unit}"
    return f"{_three_digits(value)} s"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def short(value: float) -> str:
    """Return a number in two or three digits: `7.3`, `31`, `1,204`."""
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}"


def parameters(count: float) -> str:
    """Return a number of parameters as people call models: `7B`, `1.3B`, `125M`."""
    for scale, letter in _PARAMETERS:
        if count >= scale:
            return f"{count / scale:.4g}{letter}"
    return f"{count:.0f}"
