"""Colour themes: YAML data, checked as a whole at load, turned into Textual themes. Nothing else names a colour."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from textual.color import Color, ColorParseError
from textual.theme import Theme

from dttui import locations
from dttui.errors import UsageError
from dttui.i18n import _
from dttui.spec import did_you_mean, read_yaml, validate

DEFAULT_THEME = "dusk"


def _colour(text: str) -> str:
    try:
        Color.parse(text)
    except ColorParseError as error:
        raise ValueError(_("no colour; write it as #rrggbb")) from error
    return text


Colour = Annotated[str, AfterValidator(_colour)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=lambda name: name.replace("_", "-"))


class Colours(_Section):
    """The general palette, as Textual's own widgets use it."""

    primary: Colour
    secondary: Colour
    accent: Colour
    foreground: Colour
    background: Colour
    surface: Colour
    panel: Colour
    success: Colour
    warning: Colour
    error: Colour


class Variables(_Section):
    """Colours named for what they mean here; TCSS writes them `$state-failed`."""

    muted: Colour
    """Text of less weight."""
    border_quiet: Colour
    """Lines between parts of a screen."""
    row_cursor: Colour
    """Ground of the row under the cursor."""
    row_ticked: Colour
    """Ground of a row that is ticked."""
    ticked: Colour
    """Mark of a ticked row."""
    master: Colour
    """Badge of the master."""
    simulated: Colour
    """Mark of simulated GPUs."""
    environment_connecting: Colour
    environment_idle: Colour
    environment_busy: Colour
    environment_unhealthy: Colour
    environment_unreachable: Colour
    gpu_busy: Colour
    """Filled part of a utilisation bar."""
    gpu_track: Colour
    """Empty part of a utilisation bar."""
    state_waiting: Colour
    state_starting: Colour
    state_running: Colour
    state_stopping: Colour
    state_succeeded: Colour
    state_failed: Colour
    state_cancelled: Colour
    state_unknown: Colour
    finding_info: Colour
    finding_warning: Colour
    finding_error: Colour
    plot_loss: Colour
    plot_speed: Colour
    plot_other: Colour
    """Of what has no colour of its own."""


class ThemeDocument(_Section):
    """One file of themes/."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")
    """What `--theme` calls it."""
    dark: bool
    """Whether it is for a dark terminal."""
    colours: Colours
    """Palette."""
    variables: Variables
    """Meanings."""

    def as_textual(self) -> Theme:
        """Return it in the form Textual registers."""
        domain = self.variables.model_dump(by_alias=True)
        return Theme(
            name=self.name,
            dark=self.dark,
            variables={**domain, **_derived(self.colours, domain)},
            **self.colours.model_dump(),
        )


def theme_files() -> dict[str, Path]:
    """Return the files of all themes by name, the default first: those that ship with dttui, and the person's own."""
    places = (locations.shipped("themes"), locations.themes_directory())
    found = {path.stem: path for place in places for path in sorted(place.glob("*.yaml"))}
    return dict(sorted(found.items(), key=lambda item: item[0] != DEFAULT_THEME))


def load_theme(path: Path) -> Theme:
    """Return the theme of a file.

    Raises:
        DocumentError: it lacks a colour, or has one that is none; with every problem.
        UsageError: it has another name than its file.
    """
    theme = validate(read_yaml(path), ThemeDocument).as_textual()
    if theme.name != path.stem:
        message = _("{path}: the theme is called {name}").format(path=path, name=theme.name)
        raise UsageError(message, _("Write `name: {name}`, as the file is called.").format(name=path.stem))
    return theme


def check_theme(name: str, known: Iterable[str]) -> str:
    """Return the name. Raises UsageError where there is no such theme."""
    names = [*known]
    if name not in names:
        hint = did_you_mean(name, names) or _("There are: {names}").format(names=", ".join(names))
        raise UsageError(_("there is no theme {name}").format(name=name), hint)
    return name


def _derived(colours: Colours, domain: dict[str, str]) -> dict[str, str]:
    """Return the variables of Textual's own widgets that follow from ours, so that focus and cursors look alike."""
    return {
        "border": colours.primary,
        "border-blurred": domain["border-quiet"],
        "block-cursor-background": domain["row-cursor"],
        "block-cursor-foreground": colours.foreground,
        "block-cursor-text-style": "bold",
        "block-cursor-blurred-background": domain["row-cursor"],
        "block-cursor-blurred-foreground": colours.foreground,
        "input-selection-background": domain["row-cursor"],
        "footer-background": colours.panel,
        "footer-foreground": colours.foreground,
        "footer-description-foreground": domain["muted"],
        "footer-key-foreground": colours.primary,
        "scrollbar": domain["border-quiet"],
        "scrollbar-hover": domain["muted"],
        "scrollbar-active": colours.primary,
        "scrollbar-background": colours.surface,
        "scrollbar-background-hover": colours.surface,
        "scrollbar-background-active": colours.surface,
        "scrollbar-corner-color": colours.surface,
    }
