"""The dialog that offers degrees of parallelism, ranked by predicted step time, with what speaks for each."""

from __future__ import annotations

from collections.abc import Mapping

from dtagent.protocol.metric_fields import scaled
from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Button, OptionList, Static

from dttui.compose import Offer
from dttui.i18n import _
from dttui.planning import Recommendation
from dttui.planning.advice_rows import common_gaps, compared, layouts, reasons, sought
from dttui.planning.cost_text import gap_text, is_of_images
from dttui.sanitize import clean
from dttui.tui.cost_words import attention_text, degrees_text, fit_word
from dttui.tui.screens.dialogs import Dialog
from dttui.tui.widgets.prose import Prose

ROOM_FOR_GUIDE = 32
"""Lines of the terminal from which it is also told what is usual for the size."""
ROOM_FOR_THROUGHPUT = 100
"""Columns of the terminal from which the table has the throughput, too."""
ROOM_FOR_GAPS = 88
"""Columns of a table whose columns may be two spaces apart then."""


class RecommendDialog(Dialog[Recommendation]):
    """Asks for one of several layouts; escape chooses none."""

    def __init__(self, offer: Offer, labels: Mapping[str, str]) -> None:
        """Offer layouts; `labels` are what frameworks are called, by name."""
        super().__init__()
        self.offer = offer
        self._labels = labels
        self._reasons = [" · ".join(told) for told in reasons(offer.advice.candidates)]
        if offer.staying is not None:
            self._reasons[0] = f"{clean(offer.staying)}\n{self._reasons[0]}"

    def compose(self) -> ComposeResult:
        """Lay out what was searched for, the layouts and the reasons."""
        head, *rows = _table(self.offer, self._labels, self.app.size.width)
        title = " · ".join((_("Recommended degrees"), compared(self.offer.advice)))
        with self.box(title, "-wide", subtitle=_("enter takes one · esc changes nothing")):
            yield Prose(
                _question(self.offer, self._labels, is_short=self.app.size.height < ROOM_FOR_GUIDE), id="layouts-for"
            )
            yield Static(Content.styled(head, "$muted"), id="layouts-head")
            yield OptionList(*map(_marked, rows), id="layouts", compact=True)
            yield Prose(id="layout-reasons", classes="dialog-note")
            yield from self.ok_or_cancel(_("Use it"))

    def on_mount(self) -> None:
        """Begin at the first: the fastest, or the usual one that the guide puts before it."""
        layouts = self.query_one(OptionList)
        layouts.focus()
        layouts.highlighted = 0

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self.query_one("#layout-reasons", Prose).show(Content(self._reasons[event.option_index]))

    @on(OptionList.OptionSelected)
    @on(Button.Pressed, "#ok")
    def _done(self) -> None:
        chosen = self.query_one(OptionList).highlighted
        self.dismiss(self.offer.advice.candidates[chosen] if chosen is not None else None)


def _question(offer: Offer, labels: Mapping[str, str], *, is_short: bool) -> Content:
    """Return what was searched for, what the job has now, and where there is room the guide by the model's size."""
    model, first, *rest = sought(offer, labels)
    told = [" · ".join([model, *map(attention_text, [item.estimate for item in offer.advice.candidates[:1]])]), first]
    now = offer.current
    if now.degrees is not None and now.estimate is not None:
        text = _("now: {degrees} · {tokens} tokens/s · {verdict}")
        if is_of_images(now.estimate):
            text = _("now: {degrees} · {tokens} images/s · {verdict}")
        told.append(
            text.format(
                degrees=degrees_text(now.degrees),
                tokens=scaled(now.estimate.tokens_per_s),
                verdict=fit_word(now.estimate).unbroken,
            )
        )
    gaps = [gap_text(clean(gap)) for gap in common_gaps(offer.advice.candidates)]
    told += [] if is_short else [*rest, *([" · ".join(gaps)] if gaps else [])]
    return Content("\n").join(Content.styled(text, "" if index < 2 else "$muted") for index, text in enumerate(told))


def _marked(row: str) -> Content:
    """Return a line whose other framework, where it takes one, stands out."""
    layout, arrow, other = row.partition("→")
    return Content.assemble(layout, (arrow + other, "$finding-warning"))


def _table(offer: Offer, labels: Mapping[str, str], width: int) -> list[str]:
    """Return the head and a line a layout, in columns as wide as what is in them; the widest that there is room for."""
    table = layouts(offer.advice.candidates, offer.framework, labels, is_narrow=width < ROOM_FOR_THROUGHPUT)
    lines = table.lines("  ")
    return lines if width >= ROOM_FOR_THROUGHPUT and max(map(cell_len, lines)) <= ROOM_FOR_GAPS else table.lines(" ")
