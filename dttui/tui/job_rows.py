"""From what is known of jobs to the rows of their list; the terms that filter them, and the ways to sort them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dtagent.protocol.events import JobState

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.jobs import JobEntry, parse_since
from dttui.spec import parse_duration
from dttui.tui import symbols
from dttui.tui.filter_terms import Filter, Terms, ordered, plain_number
from dttui.tui.rows import line
from dttui.tui.symbols import StateWord
from dttui.tui.widgets.job_row import JobColumn, JobRow

_THOUSANDS = {"k": 1e3, "m": 1e6}
_MOST_SHOWN_HOSTS = 6


def _number(text: str) -> float:
    """Return a number, `20k` and `1.5m` too."""
    scale = _THOUSANDS.get(text[-1:], 1.0)
    return scale * plain_number(text[:-1] if scale > 1 else text)


def _span(text: str) -> float:
    """Return the seconds of `90`, `30m`, `2h`, `3d`."""
    if text.endswith("d"):
        return 86_400.0 * plain_number(text[:-1])
    return parse_duration(text if text[-1:].isalpha() else f"{text}s")


def _moment(text: str) -> float:
    try:
        return parse_since(text, time.time())
    except UsageError as error:
        raise ValueError(error.message) from error


def _since(text: str) -> Callable[[JobRow], bool]:
    moment = _moment(text)
    return lambda row: row.begun_at is not None and row.begun_at >= moment


def _before(text: str) -> Callable[[JobRow], bool]:
    moment = _moment(text)
    return lambda row: row.begun_at is not None and row.begun_at < moment


TERMS: Terms[JobRow] = Terms(
    search=lambda row: row.search,
    texts={
        "state": lambda row: row.states,
        "name": lambda row: (row.name, row.key),
        "framework": lambda row: (row.framework,),
        "node": lambda row: row.hosts,
        "cause": lambda row: (row.cause,),
    },
    numbers={
        "loss": lambda row: row.best_loss,
        "step": lambda row: row.last_step,
        "took": lambda row: row.took_s,
        "nodes": lambda row: row.nodes,
        "gpus": lambda row: row.gpus,
    },
    units={"step": _number, "took": _span},
    times={"since": _since, "before": _before},
)

_URGENT = ("●", "◑", "◔", "↻", "◌", "?", "✗", "■", "✓")
"""Symbols of states: what runs first, then what wants to be looked at."""

SORTS: dict[JobColumn, Callable[[JobRow], Any]] = {
    JobColumn.STATE: lambda row: _URGENT.index(row.state.symbol),
    JobColumn.NAME: lambda row: row.name.casefold(),
    JobColumn.FRAMEWORK: lambda row: row.framework or None,
    JobColumn.SIZE: lambda row: (row.gpus, row.nodes) if row.nodes else None,
    JobColumn.BEGUN: lambda row: row.begun_at,
    JobColumn.TOOK: lambda row: row.took_s,
    JobColumn.BEST: lambda row: row.best_loss,
    JobColumn.STEP: lambda row: row.last_step,
    JobColumn.WHY: lambda row: row.why.casefold() or None,
}
"""Column → the key; `None` comes last either way."""
GREATEST_FIRST = {JobColumn.SIZE, JobColumn.BEGUN, JobColumn.TOOK, JobColumn.STEP}
"""Columns whose greatest values are what a person looks for."""


def job_row(entry: JobEntry) -> JobRow:
    """Return the row of one job."""
    job = entry.summary
    state = symbols.job_state(job.state)
    hosts = tuple(map(line, entry.nodes))
    name, framework, cause, reason = map(line, (job.name, job.framework, job.cause or "", job.reason))
    why = line(entry.error) or reason
    searched = (name, job.job_id, job.state.value, state.word, framework, cause, why, *hosts)
    return JobRow(
        key=job.job_id,
        name=name,
        state=state,
        framework=framework,
        nodes=job.nodes,
        gpus=job.gpus,
        simulated=job.simulated_gpus > 0,
        begun_at=job.started_at,
        took_s=job.took_s,
        best_loss=entry.best_loss,
        last_step=entry.last_step,
        why=why,
        search=" ".join(searched).casefold(),
        states=(job.state.value.casefold(), state.word),
        hosts=hosts,
        cause=cause,
        has_failed=job.state is JobState.FAILED,
    )


def arranged_jobs(rows: Iterable[JobRow], wanted: Filter[JobRow], column: JobColumn, *, is_reversed: bool) -> list[str]:
    """Return the ids of the jobs that a filter takes, in the order asked for; of alike ones the newest first."""
    found = sorted((row for row in rows if wanted.takes(row)), key=lambda row: row.begun_at or 0.0, reverse=True)
    return [row.key for row in ordered(found, SORTS[column], is_reversed=is_reversed)]


def job_detail(entry: JobEntry, row: JobRow) -> list[tuple[str, str]]:
    """Return more about a job, as (text, theme variable): which it is and where, how it went, why."""
    job = entry.summary
    hosts = list(row.hosts[:_MOST_SHOWN_HOSTS])
    if (more := len(row.hosts) - len(hosts)) > 0:
        hosts.append(_("{count} more").format(count=more))
    pieces = [job.job_id, row.framework, ", ".join(hosts)]
    pieces += [_("simulated GPUs")] if job.simulated_gpus else []
    went = []
    if job.started_at is not None:
        went.append(_("begun {time}").format(time=symbols.date_and_time(job.started_at)))
    if job.attempts > 1:
        went.append(_("{count} attempts").format(count=job.attempts))
    if entry.best_loss is not None and entry.best_step is not None:
        told = _("best loss {loss} at step {step}")
        went.append(told.format(loss=symbols.number(entry.best_loss), step=f"{entry.best_step:,}"))
    if entry.last_step is not None:
        went.append(_("last step {step}").format(step=f"{entry.last_step:,}"))
    reason = line(job.reason)
    if entry.error and line(entry.error) not in reason:
        reason = f"{reason}: {line(entry.error)}"
    if row.cause:
        reason = f"{reason} ({row.cause})"
    lines = [(" · ".join(filter(None, pieces)), "muted"), (reason, "foreground"), (" · ".join(went), "muted")]
    return [(text, colour) for text, colour in lines if text]


def counts(rows: Iterable[JobRow]) -> list[tuple[StateWord, int]]:
    """Return how many jobs there are in each state, what wants to be looked at first."""
    found = Counter(row.state for row in rows)
    return sorted(found.items(), key=lambda item: _URGENT.index(item[0].symbol))


def by_id(entries: Iterable[JobEntry], rows: Mapping[str, JobRow], before: Mapping[str, JobEntry]) -> dict[str, JobRow]:
    """Return the row of each job; of one of which nothing new is known, the one that there was."""
    return {
        entry.summary.job_id: rows[entry.summary.job_id]
        if before.get(entry.summary.job_id) is entry
        else job_row(entry)
        for entry in entries
    }
