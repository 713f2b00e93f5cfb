"""What runs on this login node, and the last job, if that has failed and nobody has looked yet, in a few figures."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from dtagent.protocol.events import JobState

from dttui.jobs.curves import speed_of
from dttui.jobs.directory import JobDirectory
from dttui.jobs.following import JobFollower, Version, version_of
from dttui.jobs.listing import JobBrief, JobSummary, directories, summarize

MOST_FOLLOWED = 8
"""Jobs whose reports are read."""
NEWS_S = 24 * 3600.0
"""For how long it is told that a job has failed, or that nothing is known of one."""


class JobBriefs:
    """Reads them again and again: of a job that is over once, of one that runs what is new."""

    def __init__(self, follow: Callable[[JobDirectory], JobFollower]) -> None:
        """Begin; `follow` returns what reads a job."""
        self._follow = follow
        self._over: dict[str, tuple[Version | None, JobSummary]] = {}
        """Job that is over → its summary, as of a version of its events."""
        self._running: dict[str, tuple[JobSummary, JobFollower]] = {}
        """One that runs → how it stood at the first look, and what reads it since."""

    def look(self, now: float | None = None) -> tuple[JobBrief, ...]:
        """Return what runs, the last that began first, and then the newest job, if that has failed and is not seen."""
        now = time.time() if now is None else now
        jobs = sorted(self._summaries(now), key=lambda job: job.started_at or 0.0, reverse=True)
        running = [job for job in jobs if not job.state.is_final]
        followed = {job.job_id for job in running[:MOST_FOLLOWED]}
        self._running = {job_id: known for job_id, known in self._running.items() if job_id in followed}
        briefs = [self._of(job, is_followed=job.job_id in followed) for job in running]
        last = max((job for job in jobs if job.state.is_final), key=lambda job: job.ended_at or 0.0, default=None)
        if last is not None and last.state is JobState.FAILED and _is_news(last, now):
            briefs.append(JobBrief(last.job_id, last.name, last.state, last.reason, last.ended_at))
        return tuple(briefs)

    def _summaries(self, now: float) -> Iterator[JobSummary]:
        """Yield where jobs stand; of which nothing is known for long is passed over."""
        over: dict[str, tuple[Version | None, JobSummary]] = {}
        for path in directories():
            directory = JobDirectory(path)
            version = version_of(directory.events)
            known = self._over.get(path.name)
            try:
                summary = known[1] if known is not None and known[0] == version else self._summary(directory, now)
            except OSError:  # Of somebody else, say: whoever looks for it by name is told.
                continue
            if summary.state.is_final:
                over[path.name] = version, summary
            if summary.state is not JobState.UNKNOWN or (version is not None and now - version[1] / 1e9 < NEWS_S):
                yield summary
        self._over = over

    def _summary(self, directory: JobDirectory, now: float) -> JobSummary:
        """Return where a job stands: of one that is followed, without reading again what is known of it."""
        if directory.job_id not in self._running:
            return summarize(directory)
        before, follower = self._running[directory.job_id]
        _catch_up(follower)
        if follower.view.state.is_final:
            return summarize(directory)
        silence = directory.silence(now)
        state = JobState.UNKNOWN if silence else follower.view.state
        return replace(before, state=state, reason=silence or follower.view.headline(now))

    def _of(self, job: JobSummary, *, is_followed: bool) -> JobBrief:
        brief = JobBrief(job.job_id, job.name, job.state, job.reason)
        if not is_followed:
            return brief
        if job.job_id not in self._running:
            self._running[job.job_id] = job, self._follow(JobDirectory.of(job.job_id))
            _catch_up(self._running[job.job_id][1])
        view = self._running[job.job_id][1].view
        newest = view.newest_metric
        if newest is None:
            return brief
        return replace(brief, progress=view.training_progress, loss=newest.loss_as_told, speed=speed_of(newest))


def _catch_up(follower: JobFollower) -> None:
    with contextlib.suppress(OSError):
        while follower.poll():
            pass


def _is_news(job: JobSummary, now: float) -> bool:
    return now - (job.ended_at or 0.0) < NEWS_S and not JobDirectory.of(job.job_id).is_seen
