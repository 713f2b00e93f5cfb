"""What a draft costs, as the compose screen shows it: whether it fits, degrees, and why there is no estimate."""

from __future__ import annotations

from textual.content import Content

from dttui.compose import Degrees, DraftCost, NoEstimate
from dttui.i18n import _, ngettext
from dttui.planning import Estimate
from dttui.planning.cost_text import Fit, fit, fit_text, memory_text, speed_up_text, step_text
from dttui.sanitize import clean
from dttui.spec import Model
from dttui.tui.symbols import StateWord, hint
from dttui.tui.widgets.cells import bar
from dttui.words import parameters

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
    word = fit_word(estimate)
    pieces: list[Content | tuple[str, str] | str] = [memory_text(estimate), " "]
    if word.colour != "finding-error":
        pieces += [memory_bar(estimate, _BAR_CELLS), " "]
    pieces.append((word.unbroken, f"bold ${word.colour}"))
    figures = [
        (_("memory/GPU"), Content.assemble(*pieces)),
        (_("left out"), Content.styled(_("buffers of the framework, data loading, others on the GPU"), "$muted")),
        (_("step time"), Content(step_text(estimate))),
    ]
    figures.append((_("assumed"), Content.styled(_assumed(estimate), "$muted")))
    speed_up = speed_up_text(estimate)
    if speed_up is not None:
        figures.append((_("speed-up"), Content(speed_up)))
        communication = _("{share} of the step").format(share=f"{estimate.communication_share:.0%}")
        figures.append((_("network"), Content.assemble(communication, (_link(estimate), "$muted"))))
    return figures


def _assumed(estimate: Estimate) -> str:
    """Return in a few words what the figures rest upon; `estimate` has it whole."""
    gaps = len(estimate.not_counted)
    told = ngettext("{count} option not counted", "{count} options not counted", gaps).format(count=gaps)
    return " · ".join([attention_text(estimate), *([told] if gaps else [])])


def _link(estimate: Estimate) -> str:
    """Return whether the link between the nodes, which that is by, was measured."""
    said = estimate.inputs.get("inter_bandwidth")
    words = {"measured": _("link measured"), "declared": _("link declared"), "default": _("link by default")}
    return f" · {words[said.source]}" if said is not None else ""


def attention_text(estimate: Estimate) -> str:
    """Return what attention is taken to be; of convolutions that they are that."""
    if "model.operations" in estimate.inputs:
        return _("convolutions")
    said = estimate.inputs.get("model.attention")
    return _("flash attention") if said is not None and said.value == "flash" else _("attention keeps s²")


def fit_word(estimate: Estimate) -> StateWord:
    """Return how it is shown whether a model fits its GPUs."""
    found = fit(estimate)
    symbol, colour = {
        Fit.FITS: ("✓", "state-succeeded"),
        Fit.BARELY: ("⚠", "finding-warning"),
        Fit.PERHAPS: ("⚠", "finding-warning"),
        Fit.NOT: ("✗", "finding-error"),
    }[found]
    return StateWord(symbol, fit_text(found), colour)


def memory_bar(estimate: Estimate, width: int) -> Content:
    """Return how much of a GPU is full at the upper end."""
    full, empty = bar(estimate.memory_per_gpu_gb.high / estimate.gpu_memory_gb, width)
    return Content.assemble((full, f"${fit_word(estimate).colour}"), (empty, "$gpu-track"))
