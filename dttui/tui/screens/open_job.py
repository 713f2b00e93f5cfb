"""The dialogs that a job begins with: a file that is picked or typed, or a template."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Button, Input, OptionList

from dttui.compose import documents
from dttui.compose.documents import JobPlaces
from dttui.i18n import _
from dttui.sanitize import clean, clean_line
from dttui.tui.commands import N_
from dttui.tui.screens.dialogs import Dialog
from dttui.tui.widgets.prose import Prose

if TYPE_CHECKING:
    from dttui.app import Template


class OpenDialog(Dialog[str]):
    """Asks for a job file: of those opened lately, or of the directory that is typed; what is typed filters both."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "step(1)", N_("down"), show=False, id="open.down", priority=True),
        Binding("up", "step(-1)", N_("up"), show=False, id="open.up", priority=True),
    ]

    def __init__(self, path: str, find: Callable[[str], JobPlaces]) -> None:
        """Ask.

        Args:
            path: what is typed to begin with.
            find: tells which files what is typed may mean, in a thread.
        """
        super().__init__()
        self._path = path
        self._find = find
        self._paths: list[Path] = []
        self._found_for = ""
        self._is_looking = False

    def compose(self) -> ComposeResult:
        """Lay out the field, and what may be meant."""
        with self.box(_("Open a job"), "-wide", subtitle=_("type to filter · ↓ ↑ choose · enter opens")):
            yield Prose(_("Its environments are ticked, and its fields filled in."), classes="dialog-text")
            yield Input(self._path, id="path", compact=True, select_on_focus=False)
            yield OptionList(id="job-places", compact=True)
            yield from self.ok_or_cancel(_("Open"))

    def on_mount(self) -> None:
        """Begin in the field."""
        self.query_one(Input).focus()
        self.fill()

    def fill(self) -> None:
        """Find what may be meant."""
        self._look()

    @on(Input.Changed)
    def _typed(self) -> None:
        self._look()

    def _look(self) -> None:
        if not self._is_looking:
            self._look_on()

    @work(group="look-ahead")
    async def _look_on(self) -> None:
        """Look for what is typed by now, until nothing else is: one look at a time, however slow the disk is."""
        self._is_looking, typed = True, None
        try:
            while typed != self.query_one(Input).value:
                typed = self.query_one(Input).value
                found = await asyncio.to_thread(self._find, typed)
                if self not in self.app.screen_stack:
                    return
                self._offer(typed, found)
        finally:
            self._is_looking = False

    def _offer(self, typed: str, found: JobPlaces) -> None:
        self._found_for = typed
        self._paths = [*found.recent, *found.files, *found.directories]
        lines = [
            *(_line("↺ ", path.name, str(path.parent)) for path in found.recent),
            *(_line("  ", path.name) for path in found.files),
            *(_line("▸ ", f"{path.name}/") for path in found.directories),
        ]
        listed = self.query_one(OptionList)
        listed.set_options(lines)
        listed.display = bool(lines)

    def action_step(self, by: int) -> None:
        """Go down or up in the list, whose lines can be chosen while one types."""
        listed = self.query_one(OptionList)
        if self._paths:
            at = listed.highlighted
            listed.highlighted = (0 if by > 0 else len(self._paths) - 1) if at is None else (at + by) % len(self._paths)

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self._open(self._paths[event.option_index])

    @on(Button.Pressed, "#ok")
    @on(Input.Submitted)
    def _done(self) -> None:
        at = self.query_one(OptionList).highlighted
        if at is not None:
            self._open(self._paths[at])
        elif typed := self.query_one(Input).value.strip():
            is_part = bool(self._paths) and self._found_for.strip() == typed
            self._open(Path(typed), self._paths[0] if is_part else None)

    @work(group="open", exclusive=True)
    async def _open(self, path: Path, found: Path | None = None) -> None:
        """Give a file; of a directory show what is in it. What is only part of a name stands for the first found."""
        if found is not None and not await asyncio.to_thread(documents.is_there, path):
            path = found
        if not await asyncio.to_thread(documents.is_directory, path):
            self.dismiss(str(path))
            return
        field = self.query_one(Input)
        field.value = f"{str(path).rstrip('/')}/"
        field.cursor_position = len(field.value)
        field.focus()


def _line(mark: str, name: str, where: str = "") -> Content:
    return Content.assemble((mark, "$muted"), clean_line(name), (f"  {clean_line(where)}" if where else "", "$muted"))


class TemplateDialog(Dialog["Template"]):
    """Asks which template to begin with."""

    def __init__(self, templates: Sequence[Template]) -> None:
        super().__init__()
        self._templates = templates

    def compose(self) -> ComposeResult:
        """Lay out the list, and below it what there is to say of the one under the cursor."""
        with self.box(_("New job from a template"), "-wide", subtitle=_("enter takes one · esc changes nothing")):
            lines = [_line("", item.name, item.label) for item in self._templates]
            yield OptionList(*lines, id="templates", compact=True)
            yield Prose(id="template-about")
            yield from self.ok_or_cancel(_("Use it"))

    def on_mount(self) -> None:
        """Begin at the first."""
        self.fill()
        self.query_one(OptionList).focus()

    def fill(self) -> None:
        """Put the cursor on the first."""
        listed = self.query_one(OptionList)
        listed.highlighted = 0 if self._templates else None

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        template = self._templates[event.option_index]
        notes = [part.replace("\n", " ") for part in template.notes]
        self.query_one("#template-about", Prose).show(Content(clean("\n".join([template.title, *map(_, notes)]))))

    @on(OptionList.OptionSelected)
    @on(Button.Pressed, "#ok")
    def _done(self) -> None:
        at = self.query_one(OptionList).highlighted
        if at is not None:
            self.dismiss(self._templates[at])
