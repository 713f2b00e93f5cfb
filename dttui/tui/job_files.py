"""Asking for a job file to save or to open: the questions around `dttui.services.compose.documents`."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from textual.app import App

from dttui import locations
from dttui.errors import DttuiError
from dttui.i18n import _
from dttui.inventory.models import Inventory
from dttui.sanitize import clean
from dttui.services.compose import documents
from dttui.services.launch.submit import Submission
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


async def save(
    app: App[Any],
    submission: Submission,
    suggestion: Path,
    options: Sequence[str],
    opened: Path | None,
    known: str | None,
) -> tuple[Submission, Path] | None:
    """Ask where to, and save a job; return it as it now is, and where. `None` where it was not saved. In a worker.

    Args:
        app: where to ask.
        submission: the job.
        suggestion: the path to begin with.
        options: what `dttui --apply` needs besides the file; see `apply_options`.
        opened: the file that the job was read from; saved there again, comments and form stay.
        known: fingerprint of that file as it was read, so that a change by somebody else is noticed.
    """
    text = _("`{command}` runs the saved file just as this screen does.").format(command=_command("FILE", options))
    answer = await app.push_screen_wait(PathDialog(_("Save the job"), text, _("Save"), str(suggestion)))
    if answer is None:
        return None
    path = Path(answer)
    if await asyncio.to_thread(documents.is_there, path):
        keeps_comments = await asyncio.to_thread(documents.keeps_comments, path, submission, opened=opened)
        is_ours = await asyncio.to_thread(documents.is_unchanged, path, opened, known)
        if not (is_ours and keeps_comments) and not await _may_replace(app, path, keeps_comments=keeps_comments):
            app.notify(
                _("Not saved: {file} is as it was.").format(file=clean(answer)), severity="warning", markup=False
            )
            return None
    try:
        saved = await asyncio.to_thread(documents.save_job, path, submission, opened=opened)
    except DttuiError as error:
        tell(app, error)
        return None
    text = _("Run it without the screen: {command}").format(command=_command(answer, options))
    app.notify(clean(text), title=_("Saved {file}.").format(file=clean(answer)), markup=False)
    return saved, path


def _command(file: str, options: Sequence[str]) -> str:
    return shlex.join(["dttui", "--apply", str(Path(file).expanduser()), *options])


async def open_(app: App[Any], inventory: Inventory, suggestion: Path) -> tuple[Submission, Path] | None:
    """Ask for a job file, and return its job; `None` where there is none. In a worker."""
    text = _("Its environments are ticked, and its fields filled in.")
    answer = await app.push_screen_wait(PathDialog(_("Open a job"), text, _("Open"), str(suggestion)))
    if answer is None:
        return None
    try:
        opened = await asyncio.to_thread(documents.open_job, Path(answer), inventory)
    except DttuiError as error:
        tell(app, error)
        return None
    if opened.notes:
        lines = [f"{note.place}: {note.message}" for note in opened.notes]
        app.notify(clean("\n".join(lines)), title=_("Not all of it is a job's"), severity="warning", markup=False)
    return opened, Path(answer)


async def _may_replace(app: App[Any], path: Path, *, keeps_comments: bool) -> bool:
    text = _("{file} is there already. Replace it?").format(file=clean(str(path)))
    if not keeps_comments:
        text += " " + _("The comments in it are not kept.")
    dialog = ChoiceDialog(_("Save the job"), text, (("no", _("Keep it"), "default"), ("yes", _("Replace"), "error")))
    return await app.push_screen_wait(dialog) == "yes"
