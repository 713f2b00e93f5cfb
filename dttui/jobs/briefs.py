"""What runs on this login node, and what has failed that nobody has looked at yet, each in a few figures."""

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
        self._followers: dict[str, JobFollower] = {}

    def look(self, now: float | None = None) -> tuple[JobBrief, ...]:
        """Return what runs, the last that began first, and then the newest job, if that has failed and is not seen."""
        now = time.time() if now is None else now
        jobs = sorted(self._summaries(now), key=lambda job: job.started_at or 0.0, reverse=True)
        running = [job for job in jobs if not job.state.is_final]
        followed = {job.job_id for job in running[:MOST_FOLLOWED]}
        self._followers = {name: follower for name, follower in self._followers.items() if name in followed}
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
            summary = known[1] if known is not None and known[0] == version else summarize(directory)
            if summary.state.is_final:
                over[path.name] = version, summary
            if summary.state is not JobState.UNKNOWN or (version is not None and now - version[1] / 1e9 < NEWS_S):
                yield summary
        self._over = over

    def _of(self, job: JobSummary, *, is_followed: bool) -> JobBrief:
        brief = JobBrief(job.job_id, job.name, job.state, job.reason)
        if not is_followed:
            return brief
        if job.job_id not in self._followers:
            self._followers[job.job_id] = self._follow(JobDirectory.of(job.job_id))
        follower = self._followers[job.job_id]
        with contextlib.suppress(OSError):
            while follower.poll():
                pass
        newest = follower.view.newest_metric
        if newest is None:
            return brief
        progress = follower.view.training_progress
        return replace(brief, progress=progress, loss=newest.loss_as_told, speed=speed_of(newest))


def _is_news(job: JobSummary, now: float) -> bool:
    return now - (job.ended_at or 0.0) < NEWS_S and not JobDirectory.of(job.job_id).is_seen
