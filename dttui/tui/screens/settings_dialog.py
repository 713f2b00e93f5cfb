"""What a person may set, a line each: a choice goes at once, and is written into their file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Select

from dttui import locations
from dttui.i18n import N_, _
from dttui.sanitize import clean
from dttui.tui.preferences import Preferences
from dttui.tui.screens.dialogs import Dialog
from dttui.tui.screens.keymap import KeymapDialog
from dttui.tui.widgets.field_label import FieldLabel
from dttui.tui.widgets.prose import Prose

LABEL_WIDTH = 24
_YES_OR_NO = ((True, N_("yes")), (False, N_("no")))


@dataclass(frozen=True)
class _Line:
    """One thing to set."""

    path: tuple[str, ...]
    name: str
    about: str
    choices: tuple[tuple[Any, str], ...] = _YES_OR_NO
    """Values and what they are called."""

    @property
    def id(self) -> str:
        return "setting-" + "-".join(self.path).replace("_", "-")


_LINES = (
    _Line(("theme",), N_("theme"), N_("Colours of the screen. Your own themes lie in {themes}."), ()),
    _Line(
        ("language",),
        N_("language"),
        N_("Language of all screens. automatic: that of the system."),
        (("auto", N_("automatic")), ("en", "English"), ("zh", "中文")),
    ),
    _Line(
        ("colours",),
        N_("colours"),
        N_("How many colours the terminal is given. automatic: as many as it says it has. NO_COLOR goes before this."),
        (
            ("auto", N_("automatic")),
            ("truecolor", N_("16 million")),
            ("ansi256", "256"),
            ("ansi16", "16"),
            ("none", N_("shades of grey")),
        ),
    ),
    _Line(
        ("plain",),
        N_("for a screen reader"),
        N_("Leaves out lines, bars and plots that are drawn with characters, and the bell."),
    ),
    _Line(
        ("confirm_quit",),
        N_("ask before quitting"),
        N_("While jobs run. Changes that are not saved are always asked about."),
    ),
    _Line(
        ("notifications", "jobs"),
        N_("tell of jobs that"),
        N_("Told on whatever screen is open, and by the next two lines."),
        (("ended", N_("have ended")), ("failed", N_("have failed")), ("none", N_("none at all"))),
    ),
    _Line(("notifications", "bell"), N_("terminal's bell"), N_("Whether it rings when a job is told of.")),
    _Line(
        ("notifications", "desktop"),
        N_("desktop notification"),
        N_("How the terminal is asked for one. automatic: where its name is known to take OSC 9 or OSC 777."),
        (("auto", N_("automatic")), ("osc9", "OSC 9"), ("osc777", "OSC 777"), ("none", N_("none"))),
    ),
)


class SettingsDialog(Dialog[None]):
    """Shows what is set; there is nothing to confirm."""

    def __init__(self, preferences: Preferences, themes: list[str]) -> None:
        super().__init__()
        self._preferences = preferences
        self._themes = themes

    def compose(self) -> ComposeResult:
        """Lay out a line a setting, and below what the one with the focus is for."""
        with self.box(_("Settings"), "-wide", subtitle=_("a choice goes at once · esc closes")):
            with VerticalScroll(id="settings-fields", can_focus=False):
                for item in _LINES:
                    with Horizontal(classes="field"):
                        yield self._label(_(item.name))
                        yield self._select(item)
                with Horizontal(classes="field"):
                    yield self._label(_("keys"))
                    yield Button(_("Change keys"), id="setting-keymap", compact=True)
            yield Prose(id="setting-about", classes="dialog-note")
            path = clean(str(locations.settings_file()))
            yield Prose(Content(_("Kept in {file}").format(file=path)), classes="dialog-note")

    def on_mount(self) -> None:
        """Begin at the first line."""
        self.query(Select).first().focus()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Say what the line is for."""
        ids = {node.id for node in event.widget.ancestors_with_self}
        about = next((_(item.about) for item in _LINES if item.id in ids), _("A key of your own for any command."))
        text = about.format(themes=clean(str(locations.themes_directory()))) if "{themes}" in about else about
        self.query_one("#setting-about", Prose).show(Content.styled(text, "$muted"))

    @on(Select.Changed)
    def _chosen(self, event: Select.Changed) -> None:
        item = next(item for item in _LINES if item.id == event.select.id)
        if event.value is not Select.NULL and event.value != self._now(item):
            self._change(item.path, event.value)

    def _change(self, path: tuple[str, ...], value: object) -> None:
        # Of the app: whoever leaves the dialog meanwhile breaks nothing off.
        self.app.run_worker(self._preferences.change(self.app, path, value), group="settings")

    @on(Button.Pressed, "#setting-keymap")
    def _keys_wanted(self) -> None:
        self.app.push_screen(KeymapDialog(self._preferences))

    def _label(self, text: str) -> FieldLabel:
        label = FieldLabel(Content(text), classes="field-label")
        label.styles.width = LABEL_WIDTH
        return label

    def _select(self, item: _Line) -> Select[Any]:
        choices = [(value, _(name)) for value, name in item.choices] or [(name, name) for name in self._themes]
        options = [(Content(clean(name)), value) for value, name in choices]
        return Select(options, id=item.id, value=self._now(item), allow_blank=False, compact=True)

    def _now(self, item: _Line) -> Any:
        in_force = {
            "theme": self.app.theme,
            "language": self._preferences.language,
            "plain": self._preferences.is_plain,
        }
        if item.path[0] in in_force:
            return in_force[item.path[0]]
        value: Any = self._preferences.settings
        for key in item.path:
            value = getattr(value, key)
        return value
