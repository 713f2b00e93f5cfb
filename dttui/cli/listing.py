"""`ps`: the jobs of this login node."""

from __future__ import annotations

import sys
import time
from argparse import Namespace

from dttui import jobs
from dttui.cli.printing import print_rows, print_table
from dttui.errors import ExitCode
from dttui.i18n import _
from dttui.timestamps import elapsed_s
from dttui.words import state_name


def ps(options: Namespace) -> int:
    """List jobs."""
    found = [job for job in jobs.list_jobs() if options.all or not job.state.is_final]
    if options.output != "human":
        print_rows([{**vars(job), "state": job.state.value} for job in found], options.output)
        return ExitCode.OK
    if not found:
        sys.stderr.write(_("no jobs are running; `dttui ps --all` shows the finished ones\n"))
    if found:
        header = (_("JOB"), _("STATE"), _("STARTED"), _("TOOK"), _("NODES"), _("RANKS"), _("REASON"))
        print_table(header, [_cells(job) for job in found])
    return ExitCode.OK


def _cells(job: jobs.JobSummary) -> tuple[str, ...]:
    started = time.strftime("%F %H:%M", time.localtime(job.started_at)) if job.started_at else "–"
    lasted = elapsed_s(job.started_at, job.ended_at) if job.started_at else 0.0
    numbers = job_duration(lasted), str(job.nodes), _ranks(job)
    return (job.job_id, state_name(job.state), started, *numbers, job.reason)


def _ranks(job: jobs.JobSummary) -> str:
    """Return how many it has, and whether they run on simulated GPUs."""
    if not job.simulated_gpus:
        return str(job.world_size)
    told = _("{count} sim") if job.simulated_gpus == job.gpus else _("{count}, partly sim")
    return told.format(count=job.world_size)


def job_duration(seconds: float) -> str:
    """Return how long a job took, or takes so far: `0:01:23`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
