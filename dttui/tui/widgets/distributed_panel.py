"""The choices of a job on several nodes: master and framework."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Label, OptionList, Select

from dttui.frameworks import frameworks, get_framework
from dttui.i18n import _
from dttui.planning.summary import network_note
from dttui.tui.messages import FrameworkChosen, MasterChosen
from dttui.tui.widgets.prose import Prose


class DistributedPanel(Vertical):
    """Shown from the second tick on."""

    def __init__(self, framework: str | None, *, id: str) -> None:
        super().__init__(id=id)
        self._framework = framework or frameworks()[0].name
        self.border_title = _("Distributed training settings")
        self.display = False
        self._names: list[tuple[str, str]] = []
        self._master: str | None = None

    def compose(self) -> ComposeResult:
        """Lay out both selects, what the chosen framework is for and offers, and the note."""
        with Horizontal(classes="field"):
            yield Label(_("Master"), classes="field-label")
            yield Select[str]([], id="master", prompt=_("choose"), compact=True)
        with Horizontal(classes="field"):
            yield Label(_("Framework"), classes="field-label")
            # A select announces its first value late; that must not undo what the job says.
            yield Select[str](
                _framework_options(), id="framework", value=self._framework, allow_blank=False, compact=True
            )
        yield Prose(id="framework-description", markup=False)
        yield Prose(id="framework-features", markup=False)
        yield Prose(Content.assemble(("⚠ ", "$warning"), network_note()), id="network-note")

    def on_mount(self) -> None:
        """Make those frameworks that cannot be launched impossible to choose."""
        options = self.query_one("#framework", Select).query_one(OptionList)
        for index, framework in enumerate(frameworks()):
            if not framework.available:
                options.disable_option_at_index(index)

    def show(self, names: Sequence[tuple[str, str]], master: str | None, framework: str | None) -> None:
        """Show the ticked environments as (key, name), the master among them and the framework."""
        self.display = len(names) > 1
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
        self.query_one("#framework-description", Prose).show(Content(chosen.description if chosen else ""))
        self.query_one("#framework-features", Prose).show(Content(" · ".join(chosen.features) if chosen else ""))

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
    why = _("cannot be used")
    return [(_option(item.label, item.summary if item.available else why), item.name) for item in frameworks()]


def _option(label: str, told: str) -> Content:
    return Content.assemble(label, (f" · {told}", "$muted") if told else "")
