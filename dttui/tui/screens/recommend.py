"""The dialog that offers degrees of parallelism, ranked by predicted step time, with what speaks for each."""

from __future__ import annotations

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Button, OptionList, Static

from dttui.compose import Offer
from dttui.frameworks import get_framework
from dttui.i18n import _
from dttui.planning import Recommendation, common_gaps, framework_of
from dttui.sanitize import clean
from dttui.tui.cost_words import degrees_text, memory_range, seconds, verdict
from dttui.tui.screens.dialogs import Dialog
from dttui.tui.widgets.cells import fit
from dttui.tui.widgets.prose import Prose
from dttui.tui.words import rate

ROOM_FOR_GAPS = 100
"""Columns from which two spaces part the columns of the table."""
_WORDS = (5, 6, 7)
"""Columns of words; the others are numbers."""


class RecommendDialog(Dialog[Recommendation]):
    """Asks for one of several layouts; escape chooses none."""

    def __init__(self, offer: Offer) -> None:
        super().__init__()
        self.offer = offer

    def compose(self) -> ComposeResult:
        """Lay out what was searched for, the layouts and the reasons."""
        gap = "  " if self.app.size.width >= ROOM_FOR_GAPS else " "
        rows = _table(self.offer, gap)
        advice = self.offer.advice
        count = _("{tried} layouts compared, {large} of them too large").format(
            tried=f"{advice.tried:,}", large=f"{advice.too_large:,}"
        )
        title = " · ".join((_("Recommended degrees"), count))
        with self.box(title, "-wide", subtitle=_("enter takes one · esc changes nothing")):
            yield Prose(_question(self.offer), id="layouts-for")
            yield Static(rows[0], id="layouts-head")
            yield OptionList(*rows[1:], id="layouts", compact=True)
            yield Prose(id="layout-reasons", classes="dialog-note")
            yield from self.ok_or_cancel(_("Use it"))

    def on_mount(self) -> None:
        """Begin at the first: the fastest, or the usual one that the guide puts before it."""
        layouts = self.query_one(OptionList)
        layouts.focus()
        layouts.highlighted = 0

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        advice = self.offer.advice
        chosen = advice.candidates[event.option_index]
        common = common_gaps(advice.candidates)
        # Of a row that takes another framework, that one's own.
        own = [_not_counted(gap) for gap in chosen.estimate.not_counted if gap not in common]
        self.query_one("#layout-reasons", Prose).show(Content(" · ".join([clean("; ".join(chosen.reasons)), *own])))

    @on(OptionList.OptionSelected)
    @on(Button.Pressed, "#ok")
    def _done(self) -> None:
        chosen = self.query_one(OptionList).highlighted
        self.dismiss(self.offer.advice.candidates[chosen] if chosen is not None else None)


def _question(offer: Offer) -> Content:
    """Return what was searched for, what the job has now, and the guide by the model's size alone."""
    batch = _("global batch {batch}") if offer.batch_is_given else _("global batch {batch} (taken by default)")
    told = [f"{offer.gpus} × {clean(offer.gpu)} · {batch.format(batch=f'{offer.global_batch:,}')}"]
    now = offer.current
    if now.degrees is not None and now.estimate is not None:
        text = _("now: {degrees} · {tokens} tokens/s · {verdict}")
        told.append(
            text.format(
                degrees=degrees_text(now.degrees),
                tokens=rate(now.estimate.tokens_per_s),
                verdict=verdict(now.estimate).unbroken,
            )
        )
    guide = get_framework(offer.advice.framework)
    label = guide.label if guide is not None else offer.advice.framework
    told.append(_("by size alone: {framework}; {reason}").format(framework=label, reason=offer.advice.framework_reason))
    told.append(" · ".join([_("attention keeps s²"), *map(_not_counted, common_gaps(offer.advice.candidates))]))
    if offer.advice.guide:
        told.append(offer.advice.guide)
    elif not offer.shape_is_given:
        told.append(_("Layers and hidden size are not given: those of a published model are taken."))
    return Content("\n").join(Content.styled(text, "" if index == 0 else "$muted") for index, text in enumerate(told))


def _not_counted(gap: str) -> str:
    return _("not counted: {what}").format(what=clean(gap))


def _table(offer: Offer, gap: str) -> list[Content]:
    """Return the head and a line a layout, in columns as wide as what is in them.

    Where the job's framework cannot train in a layout, a second line names the one that it takes.
    """
    candidates = offer.advice.candidates
    others = [_other_framework(offer.framework, item) for item in candidates]
    head = (
        "DP",
        "TP",
        "PP",
        "ZeRO",
        _("micro"),
        "SP",
        _("recompute"),
        _("schedule"),
        _("step"),
        _("tokens/s"),
        _("GB/GPU"),
    )
    rows = [head, *(_cells(item) for item in candidates)]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    told = [
        gap.join(
            fit(cell, width, right=column not in _WORDS)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    lines = zip(told[1:], others, strict=True)
    return [
        Content.styled(told[0], "$muted"),
        *(Content.assemble(line, (f"\n{other}" if other else "", "$finding-warning")) for line, other in lines),
    ]


def _other_framework(framework: str | None, item: Recommendation) -> str:
    """Say which framework a layout takes instead of the job's; empty where that can train so."""
    other = framework_of(framework, item)
    if other is None or other == framework:
        return ""
    return "  " + _("→ takes {framework} instead").format(framework=clean(get_framework(other).label))


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
        rate(item.estimate.tokens_per_s),
        memory_range(item.estimate.memory_per_gpu_gb),
    )
