"""The page of rules of thumb and of commands to try on the hosts, which can be copied."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Button

from dttui.i18n import _
from dttui.inventory import Inventory
from dttui.planning import Aggregate, ComposeState
from dttui.tui.commands import N_
from dttui.tui.guide_lines import TickedHost, commands, framework_lines, zone_lines
from dttui.tui.screens.dialogs import Dialog
from dttui.tui.widgets.button_row import ButtonRow
from dttui.tui.widgets.prose import Prose


class GuideDialog(Dialog[None]):
    """Shows them for the draft as it is."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "copy", N_("copy"), id="guide.copy", tooltip=N_("Copy the commands to the clipboard")),
    ]

    def __init__(self, state: ComposeState, inventory: Inventory, total: Aggregate | None) -> None:
        """Show them for a draft, and what its hosts add up to."""
        super().__init__()
        chosen = state.environments(inventory)
        peers = [TickedHost(item.training_address, item.name == state.master) for item in chosen]
        self._frameworks = partial(framework_lines, len(state.selected), total.gpu_count if total is not None else 0)
        self._commands = partial(commands, peers, state.python or "python3")

    def compose(self) -> ComposeResult:
        """Lay out the parts, and the buttons."""
        with self.box(
            _("What is usual, and what to try"), "-wide -tall", subtitle=_("c copies the commands · esc closes")
        ):
            with VerticalScroll(id="guide"):
                yield Prose(Content("\n").join(self._lines()))
            with ButtonRow():
                yield Button(_("Copy"), id="copy", action="screen.copy", compact=True)
                yield Button(_("Close"), action="screen.cancel", compact=True)

    def on_mount(self) -> None:
        """Let the keys scroll."""
        self.query_one("#guide").focus()

    def action_copy(self) -> None:
        """Copy the commands, one a line."""
        self.app.copy_to_clipboard("\n".join(command for command, _about in self._commands()) + "\n")
        self.notify(_("The commands are copied."), markup=False)

    def _lines(self) -> list[Content]:
        lines = [_head(_("Framework by nodes and GPUs")), *self._frameworks()]
        lines.append(
            Content.styled(_("Where the model's size is known, d compares by that, which says more."), "$muted")
        )
        lines += [Content(""), _head(_("Across zones")), *zone_lines()]
        lines += [Content(""), _head(_("Nodes do not reach each other, or CUDA differs: run on each host"))]
        for command, about in self._commands():
            lines.append(Content.assemble((command, "$primary"), "  ", (about, "$muted")))
        return lines


def _head(text: str) -> Content:
    return Content.styled(text, "bold")
