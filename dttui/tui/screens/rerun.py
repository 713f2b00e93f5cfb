"""A job is run once more from a screen: what would happen is said, and nothing is begun before a person agrees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual.app import App

from dttui.app import App as Face
from dttui.errors import DttuiError
from dttui.i18n import _
from dttui.jobs import JobDirectory
from dttui.spec import with_hint
from dttui.tui.messages import JobLaunched
from dttui.tui.resting import is_under_way
from dttui.tui.rows import line
from dttui.tui.screens.job_dialogs import rerun_dialog

if TYPE_CHECKING:
    from dttui.planning import Plan, Submission

GROUP = "rerun"
REMEDY_S = 30.0
"""For which is told why it cannot be; there is a remedy to read."""
Launcher = Callable[["Submission", "Plan"], JobDirectory]


def rerun(
    app: App[Any], face: Face, directory: JobDirectory, launch: Launcher | None = None, *, continues: bool
) -> None:
    """Launch a job again after a question, and watch it; one at a time, and whatever screen is left meanwhile.

    Args:
        app: asks, tells, and is told of the new one.
        face: reads and plans it.
        directory: of the job.
        launch: launches it as another one; without it, `face` does.
        continues: whether it goes on from the newest checkpoint of that one.
    """

    async def ask_and_launch() -> None:
        begun = await _rerun(app, face, directory, launch, continues=continues)
        if begun is not None:
            app.post_message(JobLaunched(begun))

    if is_under_way(app, GROUP):
        app.notify(_("Another job is just being launched again."), markup=False)
        return
    app.run_worker(ask_and_launch(), group=GROUP)


async def _rerun(
    app: App[Any], face: Face, directory: JobDirectory, launch: Launcher | None, *, continues: bool
) -> JobDirectory | None:
    """Return the new job; `None` where none was launched, which is told."""

    def planned() -> tuple[Submission, Plan, list[str]]:
        submission = face.resubmission(directory, continues=continues)
        return submission, face.plan(submission), face.changed_since(directory, submission)

    def submit(submission: Submission, plan: Plan) -> JobDirectory:
        return face.submit(submission, plan, starts_another=True).directory

    def tell(message: str, hint: str) -> None:
        app.notify(line(with_hint(message, hint)), severity="warning", markup=False, timeout=REMEDY_S)

    try:
        submission, plan, changed = await asyncio.to_thread(planned)
        if plan.errors:
            tell(plan.errors[0].message, plan.errors[0].hint)
            return None
        if await app.push_screen_wait(rerun_dialog(directory.job_id, submission, plan, changed)) != "run":
            return None
        return await asyncio.to_thread(launch or submit, submission, plan)
    except DttuiError as error:
        tell(error.message, error.hint)
        return None
