"""What a person has set of the screen, in a file of their own. A mistake in it costs its own key, and no start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dttui.i18n import _
from dttui.spec import DocumentError, Problem, did_you_mean, read_yaml, validate
from dttui.tui.theme import DEFAULT_THEME

Language = Literal["auto", "en", "zh"]
Colours = Literal["auto", "truecolor", "ansi256", "ansi16", "none"]
Told = Literal["ended", "failed", "none"]
Channel = Literal["auto", "osc9", "osc777", "none"]


class _SettingsSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Notifications(_SettingsSection):
    """How a person hears of a job while they look elsewhere."""

    jobs: Told = "ended"
    """Which jobs are told of: `ended`, those only that `failed`, or `none`."""
    bell: bool = True
    """Whether the terminal's bell rings."""
    desktop: Channel = "auto"
    """How the terminal is asked to notify: by OSC 9 or OSC 777; `auto` where it is known to take one of them."""


class Settings(_SettingsSection):
    """The file `settings.yaml`; each key may be left out."""

    theme: str = DEFAULT_THEME
    """Colour theme; `--theme` goes before it."""
    language: Language = "auto"
    """Language of the screen; `auto` takes that of the system. `--lang` goes before it."""
    colours: Colours = "auto"
    """How many colours the terminal is given; `auto` asks it, and `NO_COLOR` goes before all."""
    plain: bool = False
    """For a screen reader: no lines, bars and plots drawn with characters, and no bell."""
    confirm_quit: bool = True
    """Whether it is asked before quitting while jobs run. Changes that are not saved are always asked about."""
    notifications: Notifications = Notifications()
    """Told when a job ends."""
    keymap: Mapping[str, str] = Field(default_factory=dict)
    """Keys by the id of what they do: `compose.launch: ctrl+g`; several are parted by commas."""


@dataclass(frozen=True)
class SettingsFile:
    """What was read, and what could not be used."""

    path: Path
    settings: Settings = field(default_factory=Settings)
    problems: tuple[Problem, ...] = ()
    """Each with its place and what to do; of the keys that they are about the settings have the defaults."""

    def refused(self, key: tuple[str, ...], message: str, hint: str) -> SettingsFile:
        """Return it without a key whose value is of no use after all."""
        problem = Problem(str(self.path), message, hint, key)
        try:
            source = read_yaml(self.path)
            problem = source.problem(key, source.mark(key), message, hint)
        except DocumentError:  # Gone meanwhile: the place cannot be told.
            pass
        data = _without(self.settings.model_dump(exclude_unset=True), key)
        return replace(self, settings=Settings.model_validate(data), problems=(*self.problems, problem))


def read_settings(path: Path, themes: Iterable[str]) -> SettingsFile:
    """Return what a person has set; the defaults where there is no file, and of each key that cannot be used.

    Args:
        path: the file.
        themes: names of those that there are.
    """
    if not path.exists():
        return SettingsFile(path)
    try:
        source = read_yaml(path)
    except DocumentError as error:
        return SettingsFile(path, problems=error.problems)
    if source.is_empty:
        return SettingsFile(path)
    problems: list[Problem] = []
    while True:
        try:
            found = SettingsFile(path, validate(source, Settings), tuple(problems))
            break
        except DocumentError as error:
            problems += error.problems
            if any(not problem.path for problem in error.problems):
                return SettingsFile(path, problems=tuple(problems))
            data = source.data
            for problem in error.problems:
                data = _without(data, problem.path)
            source = replace(source, data=data)
    names = [*themes]
    if found.settings.theme not in names:
        wanted = found.settings.theme
        hint = did_you_mean(wanted, names) or _("There are: {names}").format(names=", ".join(names))
        return found.refused(("theme",), _("there is no theme {name}").format(name=wanted), hint)
    return found


def _without(data: Mapping[str, Any], path: tuple[str | int, ...]) -> dict[str, Any]:
    """Return plain data without what is at a path."""
    key, *below = path
    inner = data.get(str(key))
    if below and isinstance(inner, Mapping):
        return {**data, str(key): _without(inner, tuple(below))}
    return {name: value for name, value in data.items() if name != key}


def with_setting(settings: Settings, path: tuple[str, ...], value: object) -> Settings:
    """Return settings with one of them changed; `None` for what it is without the file."""
    data = _without(settings.model_dump(exclude_unset=True), path)
    if value is not None:
        *above, name = path
        inner = data
        for key in above:
            inner[key] = dict(inner.get(key, {}))
            inner = inner[key]
        inner[name] = value
    return Settings.model_validate(data)
