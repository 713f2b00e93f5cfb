"""A shell on one of the hosts of a job, for which its screen steps aside."""

from __future__ import annotations

import asyncio
from typing import Any

from textual.app import App, SuspendNotSupported

from dttui.app import App as Face
from dttui.errors import DttuiError
from dttui.i18n import _
from dttui.jobs import JobDirectory, NodeView
from dttui.sanitize import clean
from dttui.spec import with_hint
from dttui.tui.resting import LENT, is_lent_out


def use_shell(app: App[Any], face: Face, directory: JobDirectory, node: NodeView) -> None:
    """Step aside for a shell on a node, until the person leaves it; for one at a time.

    What goes on beside the screen does go on, and whichever screen that leads to is shown afterwards.
    """
    if not is_lent_out(app):
        app.run_worker(_use_shell(app, face, directory, node), group=LENT)


async def _use_shell(app: App[Any], face: Face, directory: JobDirectory, node: NodeView) -> None:
    fault: DttuiError | asyncio.CancelledError | None = None
    status = 0
    try:
        shell = face.screens.host_shell(directory, node.plan.name, node.checkpoints)
        with app.suspend(), app.batch_update():  # Nothing is drawn meanwhile.
            try:
                status = await face.screens.open_shell(shell)
            except (
                DttuiError,
                asyncio.CancelledError,
            ) as error:  # What leaves this block would leave the terminal to nobody.
                fault = error
    except DttuiError as error:
        fault = error
    except SuspendNotSupported:
        app.notify(_("There is no shell here: this terminal cannot be lent out."), severity="error", markup=False)
    if isinstance(fault, asyncio.CancelledError):
        raise fault
    if fault is not None:
        _tell(app, fault)
    elif status:
        told = _("The shell on {host} has ended with exit code {code}.").format(host=node.plan.name, code=status)
        app.notify(clean(told), markup=False)


def _tell(app: App[Any], error: DttuiError) -> None:
    app.notify(clean(with_hint(error.message, error.hint)), severity="error", markup=False)
