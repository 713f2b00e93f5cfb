"""The sections of a job that have a form of their own: a line each, with what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button

from dttui.i18n import _
from dttui.sanitize import clean
from dttui.tui.commands import N_
from dttui.tui.widgets.field_label import FieldLabel


class SectionRows(Vertical):
    """Each line opens its section, by enter or a click."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", N_("up"), show=False, id="sections.up"),
        Binding("down", "app.focus_next", N_("down"), show=False, id="sections.down"),
    ]

    def __init__(self, rows: Sequence[tuple[str, str]], *, id: str) -> None:
        """Make a line of each section, by its key and title."""
        super().__init__(id=id)
        self.border_title = _("All else of the job")
        self._rows = rows

    def compose(self) -> ComposeResult:
        """Lay out a line a section."""
        for key, title in self._rows:
            with Horizontal(classes="field"):
                yield FieldLabel(title, classes="field-label")
                action = f"screen.section('{key}')"
                yield Button("", id=f"section-{key}", classes="section", action=action, compact=True)

    def show(self, said: Mapping[str, Sequence[str]]) -> None:
        """Show what each section says, by its key."""
        for key, texts in said.items():
            label = Content(clean(" · ".join(texts))) if texts else Content.styled(_("by default"), "italic $muted")
            self.query_one(f"#section-{key}", Button).label = label

    def focus_first(self) -> None:
        """Go to the first line."""
        self.query(Button).first().focus()
