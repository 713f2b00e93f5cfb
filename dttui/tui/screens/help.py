"""The keys of a screen, from its bindings."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from dttui.i18n import _
from dttui.tui.commands import N_, ScreenCommand
from dttui.tui.screens.dialogs import Dialog
from dttui.tui.widgets.cells import fit


class HelpScreen(Dialog[None]):
    """Lists what it is given; any of its keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter", "cancel", N_("back"), id="help.back", tooltip=N_("Close this page")),
    ]

    def __init__(self, commands: list[ScreenCommand]) -> None:
        super().__init__()
        self._commands = sorted(commands, key=lambda command: not command.explanation)

    def compose(self) -> ComposeResult:
        """Lay out a line a command."""
        with self.box(_("Keys of this screen"), "-tall", subtitle=_("esc closes")), VerticalScroll():
            yield Static(self._text())

    def _text(self) -> Content:
        keys = max((cell_len(command.key) for command in self._commands), default=0)
        names = max((cell_len(command.name) for command in self._commands), default=0)
        lines = [
            Content.assemble(
                (fit(command.key, keys, right=True), "bold $primary"),
                "  ",
                (fit(command.name, names), "" if command.enabled else "$muted"),
                "  ",
                (command.explanation, "$muted"),
            )
            for command in self._commands
        ]
        return Content("\n").join(lines)
