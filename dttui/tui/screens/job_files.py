"""The file of the job on the screen: the questions around `dttui.compose.documents`."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from textual.app import App

from dttui import locations
from dttui.compose import documents
from dttui.errors import DttuiError
from dttui.i18n import _
from dttui.inventory import Inventory
from dttui.planning import ComposeState, Submission
from dttui.sanitize import clean
from dttui.tui.screens.dialogs import ChoiceDialog, PathDialog

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


class JobFile:
    """Where the job on the screen lies, if it has a file yet. Its questions are asked in a worker."""

    def __init__(self, base: Path, path: Path | None = None) -> None:
        self.base = base
        """Directory that the job's relative paths start from."""
        self._path = path
        self._known = documents.fingerprint(path) if path is not None else None
        """Fingerprint of the file as it was read or saved last, so that a change by somebody else is noticed."""

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
            saved = await asyncio.to_thread(documents.save_job, path, submission, opened=self._path)
        except DttuiError as error:
            tell(app, error)
            return None
        text = _("Run it without the screen: {command}").format(command=_command(answer, options))
        app.notify(clean(text), title=_("Saved {file}.").format(file=clean(answer)), markup=False)
        return await self._is_now(path, saved)

    async def open(self, app: App[Any], inventory: Inventory) -> ComposeState | None:
        """Ask for another file, and return its job; `None` where it stays as it is."""
        text = _("Its environments are ticked, and its fields filled in.")
        answer = await app.push_screen_wait(PathDialog(_("Open a job"), text, _("Open"), str(self._path or self.base)))
        if answer is None:
            return None
        path = Path(answer)
        try:
            opened = await asyncio.to_thread(documents.open_job, path, inventory)
        except DttuiError as error:
            tell(app, error)
            return None
        if opened.notes:
            lines = [f"{note.place}: {note.message}" for note in opened.notes]
            app.notify(clean("\n".join(lines)), title=_("Not all of it is a job's"), severity="warning", markup=False)
        return await self._is_now(path, opened)

    async def _may_write(self, app: App[Any], path: Path, submission: Submission) -> bool:
        """Whether nothing is lost by writing there, or a person says that it may be."""
        if not await asyncio.to_thread(documents.is_there, path):
            return True
        keeps_comments = await asyncio.to_thread(documents.keeps_comments, path, submission, opened=self._path)
        is_ours = await asyncio.to_thread(documents.is_unchanged, path, self._path, self._known)
        return (is_ours and keeps_comments) or await _may_replace(app, path, keeps_comments=keeps_comments)

    async def _is_now(self, path: Path, submission: Submission) -> ComposeState:
        self._known = await asyncio.to_thread(documents.fingerprint, path)
        self._path, self.base = path, submission.base
        return ComposeState.from_job(submission.job, submission.inventory)


def _command(file: str, options: Sequence[str]) -> str:
    return shlex.join(["dttui", "--apply", str(Path(file).expanduser()), *options])


async def _may_replace(app: App[Any], path: Path, *, keeps_comments: bool) -> bool:
    text = _("{file} is there already. Replace it?").format(file=clean(str(path)))
    if not keeps_comments:
        text += " " + _("The comments in it are not kept.")
    dialog = ChoiceDialog(_("Save the job"), text, (("no", _("Keep it"), "default"), ("yes", _("Replace"), "error")))
    return await app.push_screen_wait(dialog) == "yes"
