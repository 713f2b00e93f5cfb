"""The model of a job in a few words, and what can be asked about it: its size, better degrees, what it costs."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Label, Static

from dttui.i18n import _
from dttui.tui.widgets.button_row import ButtonRow


class ModelPanel(Vertical):
    """Its buttons run the actions of the screen that the keys run."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.border_title = _("Model and degrees")

    def compose(self) -> ComposeResult:
        """Lay out the model and the buttons."""
        with Horizontal(classes="field"):
            yield Label(_("Model"), classes="field-label")
            yield Static(id="model-text")
        with ButtonRow():
            yield Button(_("Model"), id="model", action="screen.model", compact=True)
            yield Button(_("Recommend"), id="recommend", action="screen.recommend", compact=True)
            yield Button(_("Estimate"), id="estimate", action="screen.estimate", compact=True)

    def show(self, model: str | None) -> None:
        """Show the model; `None` where nothing is said of it."""
        text = Content(model) if model is not None else Content.styled(_("not given, so no estimate"), "italic $muted")
        self.query_one("#model-text", Static).update(text)
