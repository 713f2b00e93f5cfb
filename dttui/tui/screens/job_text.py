"""The job as text: edited in place, with every mistake at its place, while the form follows what is valid."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar, NamedTuple

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList, Static, TextArea

from dttui.compose import ReadText
from dttui.i18n import _, ngettext
from dttui.sanitize import clean, clean_line
from dttui.spec import Finding, Job, Problem, Severity, format_path
from dttui.tui import symbols
from dttui.tui.commands import N_
from dttui.tui.screens.dialogs import ChoiceDialog, Choices
from dttui.tui.screens.page import Page
from dttui.tui.widgets.key_bar import KeyBar
from dttui.tui.widgets.title_bar import TitleBar
from dttui.tui.widgets.yaml_area import YamlArea

PAUSE_S = 0.25
"""So long after a key the text is read."""
MOST_TOLD = 50


class TextNote(NamedTuple):
    """One thing that there is to say of the text."""

    severity: Severity
    line: int | None
    column: int | None
    key: str
    message: str
    hint: str


class JobTextScreen(Page[str]):
    """Gives text that is to be edited further and is no job as it stands; `None` where the form has what is there."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", N_("back"), id="text.back", priority=True, tooltip=N_("Go back; the form has it")),
        Binding(
            "ctrl+s", "save", N_("save"), id="text.save", priority=True, tooltip=N_("Save the text as the job's file")
        ),
        Binding(
            "f8,ctrl+n", "next_note", N_("next mistake"), id="text.next", tooltip=N_("Go to the next that is told")
        ),
    ]

    def __init__(
        self,
        text: str,
        unfinished: str | None,
        name: str,
        *,
        read: Callable[[str], ReadText],
        take: Callable[[Job, str], None],
        save: Callable[[], Awaitable[str | None]],
    ) -> None:
        """Edit a text.

        Args:
            text: of the job as the form has it.
            unfinished: text that was left before to be edited further, which is shown instead.
            name: what its file is called.
            read: tells what a text is, in a thread.
            take: is given each valid job, and its text.
            save: saves the job that was taken last; returns its text as it now is, `None` where it was not saved.
        """
        super().__init__()
        self._valid = text
        self._typed = text if unfinished is None else unfinished
        self._file = name
        self._read_text = read
        self._take = take
        self._save_job = save
        self._notes: list[TextNote] = []
        self._seen: str | None = None
        """Text that was read last."""

    @property
    def has_edits(self) -> bool:
        """Whether there is text that the form does not have."""
        return self.query_one(YamlArea).text != self._valid

    def compose(self) -> ComposeResult:
        """Lay out the text, and below it what there is to say of it."""
        yield TitleBar(Content.assemble(("dttui ", "bold"), (_("job file"), "bold $primary"), "  ", clean(self._file)))
        yield YamlArea(self._typed, id="job-text")
        yield Static(id="text-state")
        yield OptionList(id="text-notes", compact=True)
        yield KeyBar()

    def on_mount(self) -> None:
        """Begin in the text."""
        self.query_one(YamlArea).focus()
        self.fill()

    def fill(self) -> None:
        """Tell what there is to say of the text."""
        self.query_one("#text-notes").display = False
        self._seen = None
        self._read_soon()

    @on(TextArea.Changed)
    def _changed(self) -> None:
        self._typed = self.query_one(YamlArea).text
        self._read_soon()

    @work(exclusive=True, group="look-ahead")
    async def _read_soon(self) -> None:
        if self._seen is not None:
            await asyncio.sleep(PAUSE_S)
        await self._read_now()

    async def _read_now(self) -> bool:
        """Read the text as it now is, show what there is to say, and return whether it is a job."""
        text = self.query_one(YamlArea).text
        found = await asyncio.to_thread(self._read_text, text)
        if self not in self.app.screen_stack or text != self.query_one(YamlArea).text:
            return False  # It was left meanwhile, or more was typed.
        self._seen = text
        if found.job is not None and text != self._valid:
            self._valid = text
            self._take(found.job, text)
        self._show(found)
        return found.job is not None

    def _show(self, found: ReadText) -> None:
        self._notes = text_notes(found)
        errors = [note for note in self._notes if note.severity is Severity.ERROR]
        self.query_one(YamlArea).mark((note.line, note.column or 1) for note in errors if note.line is not None)
        self.query_one("#text-state", Static).update(_state_line(found, len(errors)))
        listed = self.query_one("#text-notes", OptionList)
        cursor = listed.highlighted
        listed.set_options([_note_line(note) for note in self._notes])
        listed.display = bool(self._notes)
        if self._notes and cursor is not None:
            listed.highlighted = min(cursor, len(self._notes) - 1)

    @on(OptionList.OptionSelected, "#text-notes")
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self._go_to(self._notes[event.option_index])

    def action_next_note(self) -> None:
        """Go to the next place of which there is something to say."""
        row, column = self.query_one(YamlArea).cursor_location
        places = [note for note in self._notes if note.line is not None]
        later = [note for note in places if (note.line or 0, note.column or 1) > (row + 1, column + 1)]
        for note in (later or places)[:1]:
            self._go_to(note)

    def _go_to(self, note: TextNote) -> None:
        if note.line is not None:
            self.query_one(YamlArea).go_to(note.line, note.column or 1)

    @work(exclusive=True, group="job-text")
    async def action_save(self) -> None:
        """Save the text, if it is a job."""
        if not await self._read_now():
            self.notify(_("Only a job can be saved: mend what is told below first."), severity="error", markup=False)
            self.action_next_note()
            return
        text = await self._save_job()
        area = self.query_one(YamlArea)
        if text is not None and text != area.text:
            self._valid = text
            area.load_text(text)

    @work(exclusive=True, group="job-text")
    async def action_leave(self) -> None:
        """Go back; text that is no job is kept, or dropped, as a person says."""
        if await self._read_now() or not self.has_edits:
            self.dismiss(None)
            return
        text = _("The form has the last text that was a job. What was typed since can wait here.")
        choices: Choices = (
            ("stay", _("Edit further"), "primary"),
            ("keep", _("Keep it for later"), "default"),
            ("drop", _("Drop it"), "error"),
        )
        answer = await self.app.push_screen_wait(ChoiceDialog(_("This is no job yet"), text, choices))
        if answer in ("keep", "drop"):
            self.dismiss(self.query_one(YamlArea).text if answer == "keep" else None)


def text_notes(found: ReadText) -> list[TextNote]:
    """Return what there is to say of a text, mistakes first, each in the order of the file."""
    return [*map(_of_problem, found.problems[:MOST_TOLD]), *map(_of_remark, found.remarks)]


def _of_problem(problem: Problem) -> TextNote:
    key = format_path(problem.path).removeprefix("distributed_training.")
    return TextNote(Severity.ERROR, problem.line, problem.column, key, problem.message, problem.hint)


def _of_remark(finding: Finding) -> TextNote:
    place = finding.place
    line, column = (place.line, place.column) if place is not None else (None, None)
    key = place.path.removeprefix("distributed_training.") if place is not None else ""
    return TextNote(finding.severity, line, column, key, finding.message, finding.hint)


def _state_line(found: ReadText, errors: int) -> Content:
    if not errors:
        return Content.styled("✓ " + _("a valid job; the form has it"), "$success")
    count = ngettext("{count} mistake", "{count} mistakes", errors).format(count=errors)
    told = _("the form has it all the same") if found.job is not None else _("the form keeps the last valid text")
    return Content.assemble((f"✗ {count}", "bold $error"), (f" · {told}", "$muted"))


def _note_line(note: TextNote) -> Content:
    word = symbols.severity(note.severity)
    place = f"{note.line}:{note.column or 1} " if note.line is not None else ""
    return Content.assemble(
        (f"{word.symbol} ", f"bold ${word.colour}"),
        (place, "$primary"),
        (f"{clean_line(note.key)}: " if note.key else "", "bold"),
        clean_line(note.message),
        (symbols.hint(clean_line(note.hint)), "$muted"),
    )
