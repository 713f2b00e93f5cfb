"""What a person has set, put into effect in the app and written back into their file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.app import App
from textual.filter import LineFilter

from dttui import locations
from dttui.errors import DttuiError
from dttui.i18n import _, set_language
from dttui.sanitize import clean
from dttui.spec import Problem, with_hint
from dttui.tui.bindings import KeymapFault, all_bindings, checked_keymap
from dttui.tui.settings import Settings, read_settings, with_setting
from dttui.tui.terminal_filters import filters_for
from dttui.tui.theme import load_theme

FAULT_S = 30.0
"""For which it is told what is wrong in the file."""


class Preferences:
    """The settings of one app, as they are now."""

    def __init__(
        self, themes: Iterable[str], speak: Callable[[], Awaitable[None]], *, language: str | None, plain: bool
    ) -> None:
        """Read them.

        Args:
            themes: names of those that there are.
            speak: has all screens say what they say in another language.
            language: what was asked for on the command line goes before the file.
            plain: the same.
        """
        self._speak = speak
        self._file = read_settings(locations.settings_file(), themes)
        self._asked_language, self._asked_plain = language, plain
        self._turn = asyncio.Lock()
        self._filters: list[LineFilter] = []
        self.keymap: dict[str, str] = {}
        """What of the file's can be used, by the id of what it does."""
        if language is None and self.settings.language != "auto":
            set_language(self.settings.language)

    @property
    def settings(self) -> Settings:
        """As they are now."""
        return self._file.settings

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What of the file cannot be used."""
        return self._file.problems

    @property
    def is_plain(self) -> bool:
        """Whether the screen is read aloud."""
        return self._asked_plain or self.settings.plain

    def theme(self, files: Mapping[str, Path]) -> str:
        """Return the theme to begin with: the default one where that which is set cannot be used."""
        try:
            load_theme(files[self.settings.theme])
        except DttuiError as error:
            self._file = self._file.refused(("theme",), error.message, error.hint)
        return self.settings.theme

    def draw(self, app: App[Any]) -> None:
        """Have lines drawn as the settings say."""
        colours = "auto" if app.no_color else self.settings.colours
        filters = app._filters  # noqa: SLF001 - Textual has no public name for them
        for item in self._filters:
            filters.remove(item)
        self._filters = filters_for(colours, plain=self.is_plain)
        filters += self._filters
        app.set_class(self.is_plain, "-plain")
        for screen in app.screen_stack if app.is_running else ():
            for widget in (screen, *screen.walk_children()):
                widget.refresh()

    def begin(self, app: App[Any]) -> None:
        """Have the keys that the file says, and tell what is wrong in it."""
        self._take_keys(app)
        self.tell_faults(app)

    def tell_faults(self, app: App[Any]) -> None:
        """Tell what of the file cannot be used."""
        if self.problems:
            told = "\n".join(map(str, self.problems))
            title = _("Settings that cannot be used")
            app.notify(clean(told), title=title, severity="warning", markup=False, timeout=FAULT_S)

    @property
    def language(self) -> str:
        """That was asked for: on the command line, else in the file."""
        return self._asked_language or self.settings.language

    async def change(self, app: App[Any], path: tuple[str, ...], value: object) -> None:
        """Set one thing, from now on and in the file; `None` is as it is without the file. One after another.

        A key that cannot be had is told of, and nothing is changed.
        """
        async with self._turn:
            wanted = with_setting(self.settings, path, value)
            if path[0] == "keymap" and (fault := self._fault(wanted, path[1])) is not None:
                app.notify(
                    clean(with_hint(fault.message, fault.hint)), severity="warning", markup=False, timeout=FAULT_S
                )
                return
            self._file = replace(self._file, settings=wanted, problems=())
            await self._save(app, path, value)
            match path[0]:
                case "theme":
                    app.theme = self.settings.theme
                case "language":
                    self._asked_language = None
                    set_language(None if self.settings.language == "auto" else self.settings.language)
                    await self._speak()
                case "colours" | "plain":
                    self._asked_plain = self._asked_plain and path[0] != "plain"
                    self.draw(app)
                case "keymap":
                    self._take_keys(app)
                    self.tell_faults(app)

    @staticmethod
    def _fault(wanted: Settings, name: str) -> KeymapFault | None:
        """Return why a key of a keymap cannot be had."""
        _good, faults = checked_keymap(wanted.keymap, all_bindings())
        return next((fault for fault in faults if fault.id == name), None)

    async def _save(self, app: App[Any], path: tuple[str, ...], value: object) -> None:
        from dttui.compose import documents

        try:
            await asyncio.to_thread(documents.set_keys, self._file.path, {path: value})
        except DttuiError as error:
            text = _("It goes for now, and is not saved: {reason}").format(reason=error.message)
            app.notify(clean(text), severity="error", markup=False, timeout=FAULT_S)

    def _take_keys(self, app: App[Any]) -> None:
        wanted = self.settings.keymap
        if not wanted and not self.keymap:
            return
        self.keymap, faults = checked_keymap(wanted, all_bindings())
        for fault in faults:
            self._file = self._file.refused(("keymap", fault.id), fault.message, fault.hint)
        app.set_keymap(self.keymap)
