"""What a person does to a job on its screen, beside stopping it: a shell on one of its hosts, and going on with it."""

from __future__ import annotations

import asyncio
from typing import Any

from textual.app import App, SuspendNotSupported
from textual.widgets.button import ButtonVariant

from dttui.app import App as Face
from dttui.errors import DttuiError
from dttui.i18n import _
from dttui.jobs import JobDirectory, NodeView
from dttui.sanitize import clean
from dttui.tui.screens.dialogs import ChoiceDialog


def use_shell(app: App[Any], face: Face, directory: JobDirectory, node: NodeView) -> None:
    """Step aside for a shell on a node, until the person leaves it."""
    fault: DttuiError | None = None
    status = 0
    try:
        shell = face.host_shell(directory, node.plan.name, node.checkpoints)
        with app.suspend():
            try:
                status = face.open_shell(shell)
            except DttuiError as error:  # What leaves this block would leave the terminal to nobody.
                fault = error
    except DttuiError as error:
        fault = error
    except SuspendNotSupported:
        app.notify(_("There is no shell here: this terminal cannot be lent out."), severity="error", markup=False)
    if fault is not None:
        _tell(app, fault)
    elif status:
        told = _("The shell on {host} has ended with exit code {code}.").format(host=node.plan.name, code=status)
        app.notify(clean(told), markup=False)


async def restarted(app: App[Any], face: Face, directory: JobDirectory, name: str) -> JobDirectory | None:
    """Have a job go on from its newest checkpoint, after a question; return the new one, `None` where none is."""
    text = _("{name} goes on from its newest complete checkpoint, as another job, on the hosts that it had then.")
    choices: list[tuple[str, str, ButtonVariant]] = [
        ("cancel", _("Leave it"), "default"),
        ("restart", _("Restart"), "primary"),
    ]
    dialog = ChoiceDialog(_("Restart the job"), text.format(name=name), choices)
    if await app.push_screen_wait(dialog) != "restart":
        return None
    try:
        submission = await asyncio.to_thread(face.once_more, directory, continues=True)
        plan = await asyncio.to_thread(face.plan, submission)
        if plan.errors:
            app.notify(clean(f"{plan.errors[0].message}. {plan.errors[0].hint}"), severity="error", markup=False)
            return None
        return (await asyncio.to_thread(face.submit, submission, plan, starts_another=True)).directory
    except DttuiError as error:
        _tell(app, error)
    return None


def _tell(app: App[Any], error: DttuiError) -> None:
    app.notify(clean(f"{error.message}. {error.hint}" if error.hint else error.message), severity="error", markup=False)
