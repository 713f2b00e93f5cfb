"""What stands in place of the list where the inventory has no environments: two ways to go on."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Button

from dttui.i18n import _
from dttui.sanitize import clean
from dttui.tui.messages import DemoWanted, ImportWanted
from dttui.tui.widgets.prose import Prose


class EmptyInventory(Vertical):
    """Offers to import hosts, or the embedded cluster."""

    def __init__(self, path: str | None, *, id: str) -> None:
        """Say that the inventory at `path` is empty."""
        super().__init__(id=id)
        self._path = path

    def compose(self) -> ComposeResult:
        """Lay out the offers."""
        yield Prose(Content.styled(_("No environments yet"), "bold"))
        if self._path is not None:
            text = _("The inventory {path} is empty or not there.").format(path=clean(self._path))
            yield Prose(Content.styled(text, "$muted"))
        if self._path is not None:
            yield Button(_("Import hosts"), id="import", variant="primary", compact=True)
            yield Prose(Content.styled(_("Pick from the hosts that ssh already knows, or of another file."), "$muted"))
            yield Button(_("Use the demo cluster"), id="demo", compact=True)
        text = _("Three environments on this machine with simulated GPUs; the training is real.")
        yield Prose(Content.styled(text, "$muted"))

    @on(Button.Pressed, "#import")
    def _import(self) -> None:
        self.post_message(ImportWanted())

    @on(Button.Pressed, "#demo")
    def _demo(self) -> None:
        self.post_message(DemoWanted())
