"""The keys of a screen, from its bindings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from dttui.i18n import _, told_now
from dttui.tui.bindings import group_name
from dttui.tui.commands import N_, ScreenCommand, by_group
from dttui.tui.screens.dialogs import Dialog
from dttui.tui.widgets.cells import fit


class HelpScreen(Dialog[None]):
    """Lists what it is given, by the place where it is done; any of its keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter", "cancel", N_("back"), id="help.back", tooltip=N_("Close this page")),
    ]

    def __init__(self, commands: list[ScreenCommand]) -> None:
        super().__init__()
        self.commands = commands

    def compose(self) -> ComposeResult:
        """Lay out a line a command."""
        with self.box(_("Keys of this screen"), "-wide -tall", subtitle=_("esc closes")), VerticalScroll():
            yield Static(Content("\n").join(self._lines()))

    def _lines(self) -> Iterator[Content]:
        keys = max((cell_len(command.key) for command in self.commands), default=0)
        names = max((cell_len(told_now(command.name)) for command in self.commands), default=0)
        for number, (group, commands) in enumerate(by_group(self.commands).items()):
            if number:
                yield Content("")
            yield Content.styled(group_name(group), "bold")
            for command in sorted(commands, key=lambda item: not item.explanation):
                yield Content.assemble(
                    (fit(command.key, keys, right=True), "bold $primary"),
                    "  ",
                    fit(told_now(command.name), names),
                    "  ",
                    (told_now(command.explanation), "$muted"),
                )
