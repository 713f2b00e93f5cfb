"""The file of the job on the screen: the questions around `dttui.compose.documents`."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from textual.app import App

from dttui import locations
from dttui.app import Drafts
from dttui.compose import ReadText, documents
from dttui.errors import DttuiError
from dttui.i18n import _
from dttui.inventory import Inventory
from dttui.planning import ComposeState, Submission
from dttui.sanitize import clean, clean_line
from dttui.spec import Job
from dttui.tui.screens.dialogs import ChoiceDialog, Choices, PathDialog
from dttui.tui.screens.job_text import JobTextScreen
from dttui.tui.screens.open_job import OpenDialog, TemplateDialog
from dttui.words import listed

MOST_NAMES = 4
"""Files that a question names."""
MOST_NAME_CHARS = 120
"""Of a job."""
ERROR_TIMEOUT_S = 12
"""How long an error of several lines stays."""


def tell(app: App[Any], error: DttuiError) -> None:
    """Say what went wrong, and what to do."""
    text = f"{error.message}\n→ {error.hint}" if error.hint else error.message
    app.notify(clean(text), title=_("error"), severity="error", markup=False, timeout=ERROR_TIMEOUT_S)


def apply_options(*, demo: bool, inventory_path: Path | None) -> tuple[str, ...]:
    """Return what `dttui --apply FILE` needs besides, to find the environments that this screen shows."""
    if demo:
        return ("--demo",)
    if inventory_path is None or inventory_path == locations.inventory_file():
        return ()
    return ("--inventory", str(inventory_path))


class Unsaved(NamedTuple):
    """What no file has."""

    state: ComposeState
    edited: str | None
    """Text of the job as it was edited last."""
    unfinished: str | None
    """Text that is no job as it stands."""


class JobFile:
    """Where the job on the screen lies, if it has a file yet. Its questions are asked in a worker."""

    def __init__(self, base: Path, path: Path | None = None, fingerprint: str | None = None) -> None:
        self.base = base
        """Directory that the job's relative paths start from."""
        self._path = path
        self.fingerprint = fingerprint
        """Of the file as it was read or saved last, so that a change by somebody else is noticed."""
        self.edited: str | None = None
        """Text of the job as it was edited last, where its file does not have that."""
        self.unfinished: str | None = None
        """Text that was left to be edited further, and is no job as it stands."""
        self._left_at: ComposeState | None = None
        """The job on the screen at that moment."""

    @classmethod
    def at(cls, base: Path, path: Path | None) -> JobFile:
        """Return where a job lies that was just read."""
        return cls(base, path, documents.fingerprint(path) if path is not None else None)

    @classmethod
    def of_draft(cls, base: str, file: str | None, fingerprint: str | None, unsaved: Unsaved) -> JobFile:
        """Return where a job lies that was being composed, with the texts that its file lacks."""
        found = cls(Path(base), Path(file) if file else None, fingerprint)
        found._left_at, found.edited, found.unfinished = unsaved
        return found

    @property
    def name(self) -> str:
        """What problems call the file."""
        return self._path.name if self._path is not None else "job.yaml"

    @property
    def has_edits(self) -> bool:
        """Whether there is text that no file has."""
        return self.edited is not None or self.unfinished is not None

    def unsaved(self, state: ComposeState) -> Unsaved:
        """Return the job on the screen with the texts that its file lacks."""
        return Unsaved(state, self.edited, self.unfinished)

    async def text(self, state: ComposeState) -> str:
        """Return the text of the job on the screen, with its comments. Raises UsageError where it is none."""
        return await asyncio.to_thread(documents.text_of_draft, state, self._path, self.edited)

    @property
    def path(self) -> Path | None:
        """The file; `None` where there is none yet."""
        return self._path

    def submission(self, state: ComposeState, inventory: Inventory, ignored: Iterable[str] = ()) -> Submission:
        """Return the job as it is handed over to be launched or saved.

        Args:
            state: the job on the screen.
            inventory: its environments and datasets.
            ignored: codes of errors that the preflight is to ignore.

        Raises:
            UsageError: the state is no job yet.
        """
        return Submission(state.to_job(), inventory, self.base, ignored=tuple(sorted(ignored)))

    async def save(self, app: App[Any], submission: Submission, options: Sequence[str]) -> ComposeState | None:
        """Ask where to, and save; return the state as it now is, `None` where it was not saved.

        Saved again where it was read from, the file's comments and form stay.

        Args:
            app: where to ask.
            submission: the job.
            options: what `dttui --apply` needs besides the file; see `apply_options`.
        """
        text = _("`{command}` runs the saved file just as this screen does.").format(command=_command("FILE", options))
        is_shipped = self.base.is_relative_to(locations.shipped("examples").resolve())
        own = Path.cwd() if is_shipped else self.base
        suggestion = str(self._path or own / "job.yaml")
        answer = await app.push_screen_wait(PathDialog(_("Save the job"), text, _("Save"), suggestion))
        if answer is None:
            return None
        path = Path(answer)
        if not await self._may_write(app, path, submission):
            text = _("Not saved: {file} is as it was.").format(file=clean(answer))
            app.notify(text, severity="warning", markup=False)
            return None
        try:
            saved = await asyncio.to_thread(documents.save_job, path, submission, opened=self._path, edited=self.edited)
        except DttuiError as error:
            tell(app, error)
            return None
        text = _("Run it without the screen: {command}").format(command=_command(answer, options))
        app.notify(clean(text), title=_("Saved {file}.").format(file=clean(answer)), markup=False)
        return await self._is_now(path, saved)

    async def edit(
        self,
        app: App[Any],
        drafts: Drafts,
        state: Callable[[], ComposeState],
        take: Callable[[Job], None],
        save: Callable[[], Awaitable[ComposeState | None]],
        then: Callable[[], object],
    ) -> None:
        """Show the job as text.

        Args:
            app: where to show it.
            drafts: who tells what a text is.
            state: returns the job as it is on the screen.
            take: is given the job of each text that is one.
            save: asks where to, and saves what was taken last.
            then: is called once the text is left, if it is a job.
        """
        try:
            text = await self.text(state())
        except DttuiError as error:
            tell(app, error)
            return
        if self.unfinished is not None and self._left_at != state():
            answer = await _which_text(app)
            if answer is None:
                return
            self.unfinished = None if answer == "form" else self.unfinished

        def taken(job: Job, typed: str) -> None:
            self.edited = typed
            take(job)

        async def saved() -> str | None:
            saved_state = await save()
            return await self.text(saved_state) if saved_state is not None else None

        def left(unfinished: str | None) -> None:
            self.unfinished, self._left_at = unfinished, state()
            if unfinished is None:
                then()
            else:
                app.notify(_("The text is kept: y shows it again."), markup=False)

        def read(typed: str) -> ReadText:
            found = drafts.read_text(typed, self.name, self.base)
            self.unfinished = typed if found.job is None else None  # A crash is to lose none of it.
            return found

        await app.push_screen(JobTextScreen(text, self.unfinished, self.name, read=read, take=taken, save=saved), left)

    async def open(self, app: App[Any], inventory: Inventory) -> ComposeState | None:
        """Ask for another file, and return its job; `None` where it stays as it is."""
        directory = self._path.parent if self._path is not None else self.base
        begin = f"{str(directory).rstrip('/')}/"
        answer = await app.push_screen_wait(OpenDialog(begin, documents.places_for))
        return await self._opened(app, Path(answer), inventory) if answer is not None else None

    async def begin(
        self, app: App[Any], drafts: Drafts, state: ComposeState, inventory: Inventory
    ) -> ComposeState | None:
        """Ask for a template and a directory, write it there for the ticked environments, and return its job."""
        from dttui.app import JOB_FILE  # With all that templates need, which a start does not wait for.

        template = await app.push_screen_wait(TemplateDialog(await asyncio.to_thread(drafts.templates)))
        if template is None:
            return None
        text = _("The job and what it runs are written into this directory, for the environments that are ticked.")
        suggestion = str(Path.cwd() / template.name)
        answer = await app.push_screen_wait(PathDialog(_("New job from a template"), text, _("Write"), suggestion))
        if answer is None:
            return None
        target = documents.full_path(answer)
        name = clean_line(target.name)[:MOST_NAME_CHARS] or template.name
        chosen = state.environments(inventory)
        try:
            begun = await asyncio.to_thread(drafts.begin, template, chosen, inventory, name, target)
            if begun.replaced and not await _may_replace_all(app, target, begun.replaced):
                return None
            await asyncio.to_thread(drafts.write, target, begun.files)
        except DttuiError as error:
            tell(app, error)
            return None
        return await self._opened(app, target / JOB_FILE, inventory)

    async def _opened(self, app: App[Any], path: Path, inventory: Inventory) -> ComposeState | None:
        try:
            opened = await asyncio.to_thread(documents.open_job, path, inventory)
        except DttuiError as error:
            tell(app, error)
            return None
        if opened.notes:
            lines = [f"{note.place}: {note.message}" for note in opened.notes]
            app.notify(clean("\n".join(lines)), title=_("Not all of it is a job's"), severity="warning", markup=False)
        self.unfinished = None
        return await self._is_now(path, opened)

    async def _may_write(self, app: App[Any], path: Path, submission: Submission) -> bool:
        """Whether nothing is lost by writing there, or a person says that it may be."""
        if not await asyncio.to_thread(documents.is_there, path):
            return True
        keeps_comments = await asyncio.to_thread(
            documents.keeps_comments, path, submission, opened=self._path, edited=self.edited
        )
        is_ours = await asyncio.to_thread(documents.is_unchanged, path, self._path, self.fingerprint)
        return (is_ours and keeps_comments) or await _may_replace(app, path, keeps_comments=keeps_comments)

    async def _is_now(self, path: Path, submission: Submission) -> ComposeState:
        self.fingerprint = await asyncio.to_thread(documents.fingerprint, path)
        await asyncio.to_thread(documents.remember, path)
        self._path, self.base, self.edited = path, submission.base, None
        return ComposeState.from_job(submission.job, submission.inventory)


def _command(file: str, options: Sequence[str]) -> str:
    return shlex.join(["dttui", "--apply", str(documents.expanded(file)), *options])


async def _may_replace(app: App[Any], path: Path, *, keeps_comments: bool) -> bool:
    text = _("{file} is there already. Replace it?").format(file=clean(str(path)))
    if not keeps_comments:
        text += " " + _("The comments in it are not kept.")
    dialog = ChoiceDialog(_("Save the job"), text, (("no", _("Keep it"), "default"), ("yes", _("Replace"), "error")))
    return await app.push_screen_wait(dialog) == "yes"


async def _may_replace_all(app: App[Any], target: Path, names: Sequence[str]) -> bool:
    told = _("{path} has these already: {names}. Replace them?")
    text = told.format(path=clean(str(target)), names=clean(listed(names, MOST_NAMES)))
    title = _("New job from a template")
    dialog = ChoiceDialog(title, text, (("no", _("Keep them"), "default"), ("yes", _("Replace"), "error")))
    return await app.push_screen_wait(dialog) == "yes"


async def _which_text(app: App[Any]) -> str | None:
    """Ask what is to be edited, since both were changed: `text` is what was left, `form` the job on the screen."""
    text = _("A text was kept that is no job yet, and the job on the screen was changed since. Which is to be edited?")
    choices: Choices = (
        ("form", _("The job on the screen"), "primary"),
        ("text", _("The text that was kept"), "default"),
    )
    return await app.push_screen_wait(ChoiceDialog(_("Two texts"), text, choices))


async def may_drop(app: App[Any]) -> bool:
    """Ask whether the changes of the job on the screen may go."""
    text = _("The job on the screen has changes that are not saved.")
    choices: Choices = (("no", _("Keep it"), "primary"), ("yes", _("Drop the changes"), "error"))
    return await app.push_screen_wait(ChoiceDialog(_("Another job"), text, choices)) == "yes"
