"""`ps` and `history`: the jobs of this login node."""

from __future__ import annotations

import fnmatch
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict

from dttui import jobs
from dttui.cli.printing import print_rows, print_table
from dttui.errors import ExitCode
from dttui.i18n import _
from dttui.jobs import parse_since
from dttui.words import clock, state_name


def ps(options: Namespace) -> int:
    """List jobs."""
    found = [job for job in jobs.list_jobs() if options.all or not job.state.is_final]
    header = (_("JOB"), _("STATE"), _("STARTED"), _("TOOK"), _("NODES"), _("RANKS"), _("REASON"))
    none = _("no jobs are running; `dttui ps --all` shows the finished ones\n")
    return _show(found, options.output, header, _cells, none)


def history(options: Namespace) -> int:
    """List jobs that are over, those that were asked for."""
    since = parse_since(options.since, time.time()) if options.since is not None else 0.0
    found = [
        job
        for job in jobs.list_jobs()
        if job.state.is_final
        and (job.started_at or 0.0) >= since
        and (options.state is None or job.state.value in options.state)
        and (options.name is None or fnmatch.fnmatchcase(job.name, options.name))
        and options.cause in (None, job.cause)
    ]
    header = (_("JOB"), _("STATE"), _("CAUSE"), _("STARTED"), _("TOOK"), _("ATTEMPTS"), _("NODES"), _("RANKS"))
    none = _("no such jobs; `dttui history` without options lists all that are over\n")
    return _show(found, options.output, (*header, _("REASON")), _history_cells, none)


def _show(
    found: Sequence[jobs.JobSummary],
    output: str,
    header: Sequence[str],
    cells: Callable[[jobs.JobSummary], tuple[str, ...]],
    none: str,
) -> int:
    """Print jobs, for a person as a table; where there are none, what to do."""
    if output != "human":
        print_rows([{**asdict(job), "state": job.state.value} for job in found], output)
    elif found:
        print_table(header, [cells(job) for job in found])
    else:
        sys.stderr.write(none)
    return ExitCode.OK


def _history_cells(job: jobs.JobSummary) -> tuple[str, ...]:
    name, state, started, took, nodes, ranks, reason = _cells(job)
    return (name, state, job.cause or "–", started, took, str(job.attempts), nodes, ranks, reason)


def _cells(job: jobs.JobSummary) -> tuple[str, ...]:
    started = time.strftime("%F %H:%M", time.localtime(job.started_at)) if job.started_at else "–"
    took = "–" if job.took_s is None else clock(job.took_s)
    numbers = took, str(job.nodes), _ranks(job)
    return (job.job_id, state_name(job.state), started, *numbers, job.reason)


def _ranks(job: jobs.JobSummary) -> str:
    """Return how many it has, and whether they run on simulated GPUs."""
    if not job.simulated_gpus:
        return str(job.world_size)
    told = _("{count} sim") if job.simulated_gpus == job.gpus else _("{count}, partly sim")
    return told.format(count=job.world_size)
