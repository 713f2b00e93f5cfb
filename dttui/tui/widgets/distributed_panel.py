"""How a job is launched: the framework and what it is told, and of several nodes the master."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Select, Static

from dttui.frameworks import Framework, Unavailable
from dttui.i18n import _, ngettext
from dttui.planning import network_note
from dttui.sanitize import clean
from dttui.tui.messages import FrameworksWanted, MasterChosen
from dttui.tui.widgets.choice_list import ChoiceList
from dttui.tui.widgets.field_label import FieldLabel
from dttui.tui.widgets.prose import Prose


class DistributedPanel(Vertical):
    """Shown from the first tick on; what is for several nodes alone, from the second."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.display = False

    def compose(self) -> ComposeResult:
        """Lay out master and framework, what the chosen framework is for and offers, and the note."""
        with Horizontal(classes="field", id="master-field"):
            yield FieldLabel(_("Master"), classes="field-label")
            yield ChoiceList(id="master")
        with Horizontal(classes="field"):
            yield FieldLabel(_("Framework"), classes="field-label")
            yield Button(_("choose"), id="framework", compact=True)
        with Horizontal(classes="field", id="options-field"):
            yield FieldLabel(_("Options"), classes="field-label")
            yield Static(id="options-text")
            yield Button(_("Edit"), id="options", action="screen.options", compact=True)
        yield Prose(id="framework-description", markup=False)
        yield Prose(id="framework-features", markup=False)
        yield Prose(Content.assemble(("⚠ ", "$warning"), network_note()), id="network-note")

    def show(
        self, names: Sequence[tuple[str, str]], master: str | None, chosen: Framework | None, told: Mapping[str, Any]
    ) -> None:
        """Show the choices.

        Args:
            names: the ticked environments as (key, name).
            master: key of the master.
            chosen: the framework.
            told: what the framework is told.
        """
        self.display = bool(names)
        self.border_title = _("Distributed training settings") if len(names) > 1 else _("Framework")
        for selector in ("#master-field", "#network-note"):
            self.query_one(selector).display = len(names) > 1
        is_there = any(key == master for key, _name in names)
        self.query_one("#master", ChoiceList).offer(
            [(Content(name), key) for key, name in names], master if is_there else None
        )
        self.query_one("#framework", Button).label = framework_line(chosen) if chosen else Content(_("choose"))
        about = why_unusable(chosen) or chosen.description if chosen else ""
        self.query_one("#framework-description", Prose).show(Content(clean(about)))
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

    @on(Button.Pressed, "#framework")
    def _framework_asked_for(self, event: Button.Pressed) -> None:
        event.stop()
        self.post_message(FrameworksWanted())


def framework_line(framework: Framework) -> Content:
    """Return the name of a framework and its kind, or that it cannot be used."""
    kind = framework.summary if framework.available else _("cannot be used")
    return Content.assemble(clean(framework.label), (f" · {clean(kind)}", "$muted") if kind else "")


def why_unusable(framework: Framework) -> str:
    """Return why a framework cannot be used; empty for one that can."""
    if framework.available:
        return ""
    if isinstance(framework, Unavailable):
        return framework.reason
    text = _("{framework} says itself that this version of dttui cannot launch it.")
    return " ".join([text.format(framework=framework.label), framework.description])


def _has_options(framework: Framework) -> bool:
    return framework.available and bool(framework.options.model_fields)
