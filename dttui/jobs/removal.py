"""Removing jobs that are over from this login node: their directories here. What they left on hosts is left alone."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dtagent.protocol.events import EventKind, JobState

from dttui import jobs, locations
from dttui.errors import UsageError
from dttui.i18n import _
from dttui.jobs.directory import JobDirectory
from dttui.jobs.left_to_do import lost_nodes
from dttui.jobs.listing import JobSummary

_AWAY = ".removed-"
"""Beginning of the name of a directory that is being removed; no job has such a one."""
LEAVING_S = 5.0
"""For how long the controller of a job that is over is waited for: it has told the end before it ends itself."""


@dataclass(frozen=True)
class RemovableJob:
    """A job that can be removed."""

    job: JobSummary
    directory: JobDirectory
    size_bytes: int
    """What its directory takes on the disk."""
    lost: tuple[str, ...]
    """Nodes of which nobody knows what of the job runs there; without the directory nobody can look again."""


def choose(names: Sequence[str], *, force: bool = False) -> list[RemovableJob]:
    """Return the jobs that are named, each by what `jobs.find` takes.

    Args:
        names: of jobs that are over.
        force: also jobs of which nobody knows what has become.

    Raises:
        NoSuchJobError: there is none, or several.
        UsageError: one runs, or may run; nothing is to be removed then.
    """
    directories = {found.path: found for found in map(jobs.find, names)}
    return [_removal(directory, jobs.summarize(directory), force=force) for directory in directories.values()]


def choose_finished(*, before: float | None = None, keep: int = 0) -> list[RemovableJob]:
    """Return the jobs that are over, without the newest ones.

    Args:
        before: Unix time by which they had ended.
        keep: how many of those that ended last stay.
    """
    over = [job for job in jobs.list_jobs() if job.state.is_final]
    over.sort(key=lambda job: job.ended_at or 0.0, reverse=True)
    root = locations.jobs_directory()
    return [
        _removal(JobDirectory(root / job.job_id), job)
        for job in over[keep:]
        if before is None or (job.ended_at or 0.0) < before
    ]


def remove(removal: RemovableJob) -> None:
    """Remove a job's directory.

    Raises:
        UsageError: somebody began to look after the job again, or it cannot be removed.
    """
    directory = removal.directory
    _remove_rests()
    away = directory.path.with_name(_AWAY + directory.job_id)
    try:
        lock = directory.claim()
        if lock is None:
            raise _runs(directory.job_id)
        try:
            directory.path.rename(away)  # From here on it is no job's, whatever happens.
        finally:
            os.close(lock)
        shutil.rmtree(away)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            _("cannot remove {path}: {reason}").format(path=error.filename or directory.path, reason=reason)
        ) from error


def _removal(directory: JobDirectory, job: JobSummary, *, force: bool = False) -> RemovableJob:
    if directory.has_controller() and not (job.state.is_final and _is_left(directory)):
        raise _runs(job.job_id) if not job.state.is_final else _is_leaving(job.job_id)
    if not job.state.is_final and not force:
        raise UsageError(
            _("what has become of job {id} is not known, and it may still run").format(id=job.job_id),
            _("`dttui attach {id}` finds out; --force removes it here, whatever runs on its hosts.").format(
                id=job.job_id
            ),
        )
    hosts = tuple(lost_nodes(directory.read_events(EventKind.NODE_STATE))) if job.state is JobState.FAILED else ()
    return RemovableJob(job, directory, _size_bytes(directory.path), hosts)


def _runs(job_id: str) -> UsageError:
    return UsageError(_("job {id} runs").format(id=job_id), f"dttui stop {job_id}")


def _is_left(directory: JobDirectory) -> bool:
    """Wait until a job that is over has no controller any more, and return whether that came to be."""
    deadline = time.monotonic() + LEAVING_S
    while directory.has_controller():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _is_leaving(job_id: str) -> UsageError:
    return UsageError(
        _("job {id} is over, but its controller has not ended yet").format(id=job_id),
        _("Try again in a moment; `dttui doctor` says what holds it, where it stays."),
    )


def _remove_rests() -> None:
    """Remove what a removal that was broken off has left."""
    with contextlib.suppress(OSError):
        for path in locations.jobs_directory().glob(f"{_AWAY}*"):
            shutil.rmtree(path, ignore_errors=True)


def _size_bytes(directory: Path) -> int:
    total = 0
    for folder, _folders, files in os.walk(directory):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total
