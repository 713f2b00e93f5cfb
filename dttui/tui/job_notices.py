"""Tells of jobs that have ended while a person looks elsewhere: on the screen, and through the terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from dtagent.protocol.events import JobState
from textual.app import App

from dttui import jobs
from dttui.jobs import JobBrief, JobDirectory, JobSummary
from dttui.tui import symbols, terminal_notices
from dttui.tui.resting import is_lent_out
from dttui.tui.rows import line

if TYPE_CHECKING:
    from dttui.tui.preferences import Preferences

TOAST_S = 10.0


class JobNotices:
    """Compares what runs with what ran before."""

    def __init__(self, app: App[Any], preferences: Preferences) -> None:
        self._app = app
        self._preferences = preferences
        self.write: Callable[[str], None] = self._write
        """Writes to the terminal."""

    def look(self, before: Sequence[JobBrief], now: Sequence[JobBrief]) -> None:
        """Tell of each job that ran before and does no more."""
        for job_id in _running(before) - _running(now):
            self._app.run_worker(self._tell(job_id), group="notices")

    async def _tell(self, job_id: str) -> None:
        try:
            summary = await asyncio.to_thread(jobs.summarize, JobDirectory.of(job_id))
        except OSError:  # Removed meanwhile.
            return
        wanted = self._preferences.settings.notifications
        if not summary.state.is_final or wanted.jobs == "none":
            return
        if wanted.jobs == "failed" and summary.state is not JobState.FAILED:
            return
        title, text = told_of(summary)
        if getattr(self._app.screen, "directory", None) != JobDirectory.of(job_id):
            severity: Literal["error", "information"] = "error" if summary.state is JobState.FAILED else "information"
            self._app.notify(text, title=title, severity=severity, markup=False, timeout=TOAST_S)
        if not self._preferences.is_plain:
            self.write(
                terminal_notices.sequence(
                    title, text, channel=wanted.desktop, bell=wanted.bell, environment=dict(os.environ)
                )
            )

    def _write(self, text: str) -> None:
        driver = self._app._driver  # noqa: SLF001 - as Textual's own `bell` does; it has no public name
        if text and driver is not None and not (self._app.is_headless or is_lent_out(self._app)):
            driver.write(text)


def told_of(job: JobSummary) -> tuple[str, str]:
    """Return the title and the text that tell how a job has ended."""
    state = symbols.job_state(job.state)
    took = "" if job.took_s is None else symbols.duration(job.took_s)
    return f"{state.symbol} {line(job.name)}", " · ".join(part for part in (state.word, took, line(job.reason)) if part)


def _running(briefs: Sequence[JobBrief]) -> set[str]:
    return {brief.job_id for brief in briefs if not brief.state.is_final}
