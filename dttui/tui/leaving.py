"""What is asked before the app is left: jobs go on, edits are lost."""

from __future__ import annotations

from collections.abc import Sequence

from dtagent.protocol.events import JobState

from dttui import jobs
from dttui.i18n import _, ngettext
from dttui.sanitize import clean
from dttui.tui.screens.dialogs import Question


def running_jobs() -> list[jobs.JobSummary]:
    """Return what runs on this login node."""
    return [job for job in jobs.list_jobs() if not job.state.is_final and job.state is not JobState.UNKNOWN]


def leave_question(running: Sequence[jobs.JobSummary], *, has_edits: bool) -> Question:
    """Return what to ask, and with what to answer."""
    sentences = [_("The job on the screen has changes that are not saved.")] if has_edits else []
    if running:
        names = ", ".join(clean(job.name) for job in running[:3])
        text = ngettext(
            "{count} job is running and goes on without this screen: {names}. `dttui status` tells how it is.",
            "{count} jobs are running and go on without this screen: {names}. `dttui ps` tells how they are.",
            len(running),
        )
        sentences.append(text.format(count=len(running), names=names))
    text = "\n".join(sentences) or _("No job is running any more.")
    if has_edits:
        return Question(text, (("stay", _("Stay"), "primary"), ("quit", _("Leave"), "error")))
    return Question(text, (("quit", _("Quit"), "primary"), ("stay", _("Stay"), "default")))
