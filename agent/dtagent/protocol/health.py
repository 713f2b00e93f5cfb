"""A command of the user's that says whether a job goes well on a host, and what it has said last."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HealthCheck:
    """A command that is run now and then beside the ranks of a host, in the environment of its first process."""

    argv: list[str]
    cwd: str
    every_s: float
    """From the end of one run to the beginning of the next."""
    timeout_s: float
    """After so long it is killed with all its children, and counts as failed."""
    failures: int
    """So many in a row make the host unhealthy; one that succeeds makes it healthy again."""
    start_period_s: float = 0.0
    """From when all ranks of the host run: failures within it do not count, unless one has succeeded before."""


@dataclass(frozen=True)
class Health:
    """What the command has come to on a host."""

    is_healthy: bool
    since: float
    """Unix time, this host's clock: when the first of those runs ended that all say the same."""
    exit_code: int | None = None
    """Of the last run that was told; `None` where a signal ended it, or it never ran."""
    signal: int | None = None
    timed_out: bool = False
    """Whether it was killed for taking too long."""
    error: str = ""
    """Why it could not be started; empty where it was."""
    line: str = ""
    """Last line that it printed."""
