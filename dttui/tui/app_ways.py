"""What an app offers on every screen, whatever that is about: help, settings, palette, jumps, keys of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.command import CommandPalette, Provider
from textual.theme import ThemeProvider

from dttui.i18n import _
from dttui.tui.bindings import group_name
from dttui.tui.commands import N_, ScreenCommands, all_commands_of
from dttui.tui.preferences import Preferences
from dttui.tui.retelling import tell_anew
from dttui.tui.screens.help import HelpScreen
from dttui.tui.screens.jump import JumpScreen, go_to, jump_places


class AppWays(App[None]):
    """Knows no screen of jobs or hosts but by the actions that lead there."""

    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {ScreenCommands}
    ROUTES: ClassVar[Mapping[str, str]] = {"settings": "settings", "keymap": "settings"}
    """Action that leads to the place of a group of commands."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", N_("keys"), id="app.help", tooltip=N_("Show the keys of this screen")),
        Binding("f1", "help", N_("keys"), id="app.help-too", priority=True, tooltip=N_("Show the keys of this screen")),
        Binding(
            "comma",
            "settings",
            N_("settings"),
            show=False,
            id="app.settings",
            tooltip=N_("Choose theme, language, keys"),
        ),
        Binding(
            "ctrl+o",
            "jump",
            N_("jump"),
            show=False,
            id="app.jump",
            priority=True,
            tooltip=N_("Go to any field by a letter"),
        ),
    ]

    preferences: Preferences
    """What a person has set; made by who makes the app."""

    def __init__(self) -> None:
        super().__init__()
        self.typed_before: dict[str, dict[str, str]] = {}
        """What was typed into dialogs that were left by esc."""

    @property
    def keymap(self) -> Mapping[str, str]:
        """Keys that a person has given to commands, by the id of each."""
        return self.preferences.keymap

    def action_help(self) -> None:
        """Show the keys of the screen."""
        if not isinstance(self.screen, (HelpScreen, JumpScreen, CommandPalette)):
            self.push_screen(HelpScreen([item for item in all_commands_of(self.screen) if item.enabled]))

    def action_settings(self) -> None:
        """Show the settings."""
        from dttui.tui.screens.settings_dialog import SettingsDialog

        if not isinstance(self.screen, SettingsDialog):
            self.push_screen(SettingsDialog(self.preferences, sorted(self.available_themes)))

    def action_jump(self) -> None:
        """Show a letter on each place that can be gone to."""
        if not isinstance(self.screen, (JumpScreen, CommandPalette)):
            self.push_screen(JumpScreen(jump_places(self.screen)), go_to)

    def action_command_palette(self) -> None:
        """Show all commands."""
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(
                CommandPalette(placeholder=_("words of a command, or of its help"), id="--command-palette")
            )

    async def tell_anew(self) -> None:
        """Have all open screens say in the language chosen now what they say."""
        await tell_anew(self)

    def search_themes(self) -> None:
        """Show all themes."""
        self.push_screen(CommandPalette([ThemeProvider], placeholder=_("part of a theme's name")))

    async def lead_to(self, group: str, told: str) -> None:
        """Go to where the commands of a group are, where there is a way from here, and say what to do there."""
        if group in self.ROUTES:
            await self.run_action(f"app.{self.ROUTES[group]}")
        self.notify(told, title=group_name(group), markup=False)
