"""How a job is launched: the framework and what it is told, and of several nodes the master."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Label, OptionList, Select, Static

from dttui.frameworks import frameworks, get_framework
from dttui.frameworks.base import Framework
from dttui.frameworks.unavailable import Unavailable
from dttui.i18n import _, ngettext
from dttui.planning.summary import network_note
from dttui.sanitize import clean
from dttui.tui.messages import FrameworkChosen, FrameworksWanted, MasterChosen
from dttui.tui.widgets.prose import Prose


class FrameworkSelect(Select[str]):
    """Shows the framework; to choose one, its screen is asked for a dialog, where there is room for words."""

    def validate_expanded(self, expanded: bool) -> bool:
        """Open no list of its own."""
        if expanded:
            self.post_message(FrameworksWanted())
        return False


class DistributedPanel(Vertical):
    """Shown from the first tick on; what is for several nodes alone, from the second."""

    def __init__(self, framework: str | None, *, id: str) -> None:
        super().__init__(id=id)
        self._framework = framework or frameworks()[0].name
        self.display = False
        self._names: list[tuple[str, str]] = []
        self._master: str | None = None

    def compose(self) -> ComposeResult:
        """Lay out both selects, what the chosen framework is for and offers, and the note."""
        with Horizontal(classes="field", id="master-field"):
            yield Label(_("Master"), classes="field-label")
            yield Select[str]([], id="master", prompt=_("choose"), compact=True)
        with Horizontal(classes="field"):
            yield Label(_("Framework"), classes="field-label")
            # A select announces its first value late; that must not undo what the job says.
            yield FrameworkSelect(
                _framework_options(), id="framework", value=self._framework, allow_blank=False, compact=True
            )
        with Horizontal(classes="field", id="options-field"):
            yield Label(_("Options"), classes="field-label")
            yield Static(id="options-text")
            yield Button(_("Edit"), id="options", action="screen.options", compact=True)
        yield Prose(id="framework-description", markup=False)
        yield Prose(id="framework-features", markup=False)
        yield Prose(Content.assemble(("⚠ ", "$warning"), network_note()), id="network-note")

    def on_mount(self) -> None:
        """Make those frameworks that cannot be launched impossible to choose."""
        options = self.query_one("#framework", Select).query_one(OptionList)
        for index, framework in enumerate(frameworks()):
            if not framework.available:
                options.disable_option_at_index(index)

    def show(
        self, names: Sequence[tuple[str, str]], master: str | None, framework: str | None, told: Mapping[str, Any]
    ) -> None:
        """Show the choices.

        Args:
            names: the ticked environments as (key, name).
            master: key of the master.
            framework: name of the framework.
            told: what the framework is told.
        """
        self.display = bool(names)
        self.border_title = _("Distributed training settings") if len(names) > 1 else _("Framework")
        for selector in ("#master-field", "#network-note"):
            self.query_one(selector).display = len(names) > 1
        with self.prevent(Select.Changed):
            select = self.query_one("#master", Select)
            if list(names) != self._names:
                self._names = list(names)
                select.set_options([(Content(name), key) for key, name in names])
            self._master = master if any(key == master for key, _name in names) else None
            select.value = self._master or Select.NULL
            if framework is not None:
                self._framework = framework
                self.query_one("#framework", Select).value = framework
        chosen = get_framework(framework) if framework is not None else None
        self.query_one("#framework-description", Prose).show(Content(_description(chosen) if chosen else ""))
        self.query_one("#framework-features", Prose).show(Content(" · ".join(chosen.features) if chosen else ""))
        self.query_one("#options-field").display = chosen is not None and (bool(told) or _has_options(chosen))
        text = ngettext("{count} given: {names}", "{count} given: {names}", len(told))
        text = text.format(count=len(told), names=", ".join(told))
        shown = Content(clean(text)) if told else Content.styled(_("by default"), "italic $muted")
        self.query_one("#options-text", Static).update(shown)

    @on(Select.Changed, "#master")
    def _master_changed(self, event: Select.Changed) -> None:
        event.stop()
        if isinstance(event.value, str):
            self.post_message(MasterChosen(event.value))
        elif self._master is not None:
            self.query_one("#master", Select).value = self._master

    @on(Select.Changed, "#framework")
    def _framework_changed(self, event: Select.Changed) -> None:
        event.stop()
        if isinstance(event.value, str) and event.value != self._framework:
            self.post_message(FrameworkChosen(event.value))


def _framework_options() -> list[tuple[Content, str]]:
    return [(framework_line(item), item.name) for item in frameworks()]


def framework_line(framework: Framework) -> Content:
    """Return the name of a framework and its kind, or that it cannot be used."""
    kind = framework.summary if framework.available else _("cannot be used")
    return Content.assemble(clean(framework.label), (f" · {clean(kind)}", "$muted") if kind else "")


def _description(framework: Framework) -> str:
    return framework.reason if isinstance(framework, Unavailable) else framework.description


def _has_options(framework: Framework) -> bool:
    return framework.available and bool(framework.options.model_fields)
