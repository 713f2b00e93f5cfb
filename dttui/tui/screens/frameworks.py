"""The dialog that offers the frameworks: what each is for and offers, and why one cannot be used."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Button, OptionList

from dttui.frameworks import Framework, Unavailable
from dttui.i18n import _
from dttui.sanitize import clean
from dttui.tui import symbols
from dttui.tui.screens.dialogs import Dialog
from dttui.tui.widgets.distributed_panel import framework_line, why_unusable
from dttui.tui.widgets.prose import Prose


class FrameworkDialog(Dialog[str]):
    """Gives the name of the one chosen; escape chooses none."""

    def __init__(self, frameworks: Sequence[Framework], chosen: str | None) -> None:
        """Ask which; the cursor begins at `chosen`."""
        super().__init__()
        self._frameworks = frameworks
        self._chosen = chosen

    def compose(self) -> ComposeResult:
        """Lay out the list, and below it what there is to say of the one under the cursor."""
        with self.box(_("Framework"), subtitle=_("enter takes one · esc changes nothing")):
            yield OptionList(*map(framework_line, self._frameworks), id="frameworks", compact=True)
            yield Prose(id="framework-about")
            yield from self.ok_or_cancel(_("Use it"))

    def on_mount(self) -> None:
        """Begin at what the job has."""
        names = [item.name for item in self._frameworks]
        listed = self.query_one(OptionList)
        listed.focus()
        listed.highlighted = names.index(self._chosen) if self._chosen in names else 0

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        framework = self._frameworks[event.option_index]
        self.query_one("#framework-about", Prose).show(_about(framework))
        self.query_one("#ok", Button).disabled = not framework.available

    @on(OptionList.OptionSelected)
    @on(Button.Pressed, "#ok")
    def _done(self) -> None:
        index = self.query_one(OptionList).highlighted
        if index is not None and self._frameworks[index].available:
            self.dismiss(self._frameworks[index].name)


def _about(framework: Framework) -> Content:
    if why := why_unusable(framework):
        hint = symbols.hint(framework.hint).strip() if isinstance(framework, Unavailable) else ""
        return Content.assemble((f"✗ {clean(why)}", "$error"), "\n", hint)
    lines = [Content(clean(framework.description))]
    lines += [Content.assemble(("• ", "$ticked"), clean(feature)) for feature in framework.features]
    if framework.requires:
        needed = _("needs on every host: {packages}").format(packages=", ".join(framework.requires))
        lines.append(Content.styled(clean(needed), "$muted"))
    return Content("\n").join(lines)
