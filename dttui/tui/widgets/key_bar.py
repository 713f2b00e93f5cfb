"""The line of keys at the bottom: Textual's footer, in the language of the person, with only what fits."""

from __future__ import annotations

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.widgets import Footer
from textual.widgets._footer import FooterKey  # the footer's own part; it has no public name

from dttui.tui.commands import Command, commands_of

GAP = 2


class KeyBar(Footer):
    """Shows commands, the most important first; the way to the others is at the right."""

    def __init__(self) -> None:
        super().__init__(show_command_palette=False, compact=True)

    def compose(self) -> ComposeResult:
        """Make a key of each command that fits; none is cut."""
        if not self._bindings_ready:
            return
        commands = [command for command in commands_of(self.screen) if command.shown]
        room = self.app.size.width - GAP - sum(self._width(command) for command in commands if _is_help(command))
        for command in commands:
            if _is_help(command):
                yield self._key(command, "-help")
            elif room >= self._width(command):
                room -= self._width(command)
                yield self._key(command, "")
            else:
                room = 0

    def on_resize(self) -> None:
        """Choose anew what fits."""
        if self._bindings_ready:
            self.call_after_refresh(self.recompose)

    def _key(self, command: Command, classes: str) -> FooterKey:
        display = self.app.get_key_display(command.binding)
        key = FooterKey(
            command.binding.key,
            display,
            command.name,
            command.action,
            disabled=not command.enabled,
            tooltip=command.explanation,
            classes=classes,
        )
        return key.data_bind(compact=Footer.compact)

    def _width(self, command: Command) -> int:
        return cell_len(self.app.get_key_display(command.binding)) + 1 + cell_len(command.name) + GAP


def _is_help(command: Command) -> bool:
    return command.action == "help"
