"""The line of keys at the bottom: Textual's footer, in the language of the person, with only what fits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.widgets import Footer
from textual.widgets._footer import FooterKey  # the footer's own part; it has no public name

from dttui.tui.commands import ScreenCommand, commands_of

GAP = 2
"""After each key; the last one's is all that parts it from the keys at the right."""
PADDING = 1
"""Of the line, beyond the last gap."""
ROOM_FOR_QUIT = 100
"""Columns from which the way out has a place of its own."""


class _Key(NamedTuple):
    """What is to be seen of a command, and what a click on it does."""

    key: str
    display: str
    name: str
    action: str
    enabled: bool
    explanation: str


class KeyBar(Footer):
    """Shows commands, the most important first; those to the other commands and out keep their room."""

    def __init__(self) -> None:
        super().__init__(show_command_palette=False, compact=True)
        self._drawn: list[_Key] | None = None

    async def recompose(self) -> None:
        """Draw the keys anew where they are others: Textual asks each time the focus moves, and as a screen goes."""
        if not self.is_attached:
            return
        if self._drawn is None or self._drawn != list(self._fitting()):
            await super().recompose()

    def compose(self) -> ComposeResult:
        """Make a key of each command that fits; none is cut."""
        if not self._bindings_ready:
            return
        self._drawn = list(self._fitting())
        for item in self._drawn:
            yield FooterKey(
                item.key,
                item.display,
                item.name,
                item.action,
                disabled=not item.enabled,
                tooltip=item.explanation,
                classes="-compact -help" if item.action == "help" else "-compact",
            )

    def on_resize(self) -> None:
        """Choose anew what fits."""
        if self._bindings_ready:
            self.call_after_refresh(self.recompose)

    def _fitting(self) -> Iterator[_Key]:
        commands = [command for command in commands_of(self.screen) if command.shown]
        kept = {"help", "leave"} if self.app.size.width >= ROOM_FOR_QUIT else {"help"}
        room = self.app.size.width - PADDING - sum(self._width(item) for item in commands if item.action in kept)
        for command in commands:
            if command.action in kept:
                yield self._key(command)
            elif room >= self._width(command):
                room -= self._width(command)
                yield self._key(command)
            else:
                room = 0

    def _key(self, command: ScreenCommand) -> _Key:
        display = self.app.get_key_display(command.binding)
        return _Key(
            command.binding.key, display, str(command.name), command.action, command.enabled, str(command.explanation)
        )

    def _width(self, command: ScreenCommand) -> int:
        return cell_len(self.app.get_key_display(command.binding)) + 1 + cell_len(command.name) + GAP
