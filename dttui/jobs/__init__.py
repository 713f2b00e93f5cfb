"""The read side of jobs: their directories, events, logs, metrics and views."""

from dttui.jobs.directory import (
    HEARTBEAT_S,
    LAUNCHER,
    JobDirectory,
    JobSummary,
    create,
    find,
    find_open,
    list_jobs,
    slug,
    summarize,
)

__all__ = [
    "HEARTBEAT_S",
    "LAUNCHER",
    "JobDirectory",
    "JobSummary",
    "create",
    "find",
    "find_open",
    "list_jobs",
    "slug",
    "summarize",
]
