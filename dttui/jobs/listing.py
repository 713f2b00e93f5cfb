"""The jobs of this login node: finding the one that a person means, and where each stands, from its files alone."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from dtagent.protocol.events import Event, EventKind, JobState

from dttui import locations
from dttui.errors import NoSuchJobError, UsageError
from dttui.i18n import _
from dttui.jobs.aftermath import KINDS as LATER_KINDS
from dttui.jobs.aftermath import OUTCOME, Aftermath, left_behind
from dttui.jobs.directory import JobDirectory, slug
from dttui.jobs.disturbances import KINDS, trouble_of
from dttui.jobs.event_log import newest_event, read_events
from dttui.jobs.figures import Figure, figures_of
from dttui.jobs.unwritten import unwritten_events
from dttui.timestamps import elapsed_s
from dttui.words import listed

if TYPE_CHECKING:
    from dttui.jobs.training_progress import TrainingProgress

MAX_NAMES = 8
"""Jobs that an error names."""
_WATCHED = (
    JobState.LAUNCHING,
    JobState.RENDEZVOUS,
    JobState.RUNNING,
    JobState.STOPPING,
    JobState.RESTARTING,
)
"""States in which hosts are heard from, or something is waited for."""
_MADE = re.compile(r"-\d{4}-\d{6}-[0-9a-f]{4}$")
"""What follows the name in an id."""
_TOTAL_NAMES = ("node_count", "gpu_count", "simulated_gpu_count")
_HEAD_NAMES = ("job_name", "framework", "world_size", *_TOTAL_NAMES)
_HEAD = re.compile(
    r' {2}(?: {2}(?="(?:' + "|".join(_TOTAL_NAMES) + r')"))?"(' + "|".join(_HEAD_NAMES) + r')": (.*?),?\n'
)
"""A line of a plan that `ps` shows; totals stand in `aggregate`."""


@dataclass(frozen=True)
class JobSummary:
    """One line of `dttui ps`."""

    job_id: str
    name: str
    state: JobState
    reason: str
    started_at: float | None
    """Unix time."""
    ended_at: float | None
    nodes: int
    world_size: int
    framework: str
    gpus: int
    """GPUs that it uses, as far as that is known."""
    simulated_gpus: int
    """How many of them are simulated."""
    attempts: int
    """How many there were, of a job that is over; else how many there are as far as its states tell."""
    cause: str | None
    """Code of why it failed; `None` of one that did not, or of which no cause is known."""
    figures: dict[str, Figure]
    """What its plan has estimated, beside what was measured in its last attempt; of a job that is over."""

    @property
    def took_s(self) -> float | None:
        """How long it ran, or has run so far; `None` before it starts, and where it is not known whether it goes on."""
        if self.started_at is None or (self.ended_at is None and self.state is JobState.UNKNOWN):
            return None
        return elapsed_s(self.started_at, self.ended_at)


@dataclass(frozen=True)
class JobEntry:
    """One job of the list: where it stands, and what stands in its plan, its reports and its failures."""

    summary: JobSummary
    nodes: tuple[str, ...] = ()
    """Names of its hosts, in order of node rank."""
    error: str = ""
    """What the rank said that failed first; empty where none did, or it said nothing."""
    best_loss: float | None = None
    """The least that the lowest rank has reported."""
    best_step: int | None = None
    """At which step that was."""
    last_step: int | None = None
    """The furthest that it has reported."""


@dataclass(frozen=True)
class JobBrief:
    """One job that runs, or one that has failed."""

    job_id: str
    name: str
    state: JobState
    reason: str = ""
    ended_at: float | None = None
    """Unix time; `None` of one that runs."""
    progress: TrainingProgress | None = None
    loss: float | None = None
    """NaN where it was reported as no number."""
    speed: tuple[str, float] | None = None
    """The metric's field, and its value."""


def find(job_id: str) -> JobDirectory:
    """Return a job by its id, by its name, of several so called the newest, or by the start of an id that is unique.

    `last` is the newest of all. An id counts before a name, and a name before the start of an id.

    Raises:
        NoSuchJobError: none, or several.
        UsageError: the id is empty.
    """
    known, is_exact = _meant(job_id)
    if known and (is_exact or len(known) == 1):
        return JobDirectory(known[0])
    if known:
        names = listed([path.name for path in known], MAX_NAMES)
        raise NoSuchJobError(
            _("{id} could be any of: {names}").format(id=job_id, names=names),
            _("Write more of the id, or all of the name."),
        )
    if job_id == "last":
        raise NoSuchJobError(_("there is no job on this login node"), "dttui --apply JOB.YAML")
    raise NoSuchJobError(
        _("there is no job {id} on this login node").format(id=job_id), _("`dttui ps` lists the jobs.")
    )


def find_open(job_id: str | None, verb: str = "stop") -> JobDirectory:
    """Return the job that a person means who wants to do something to a running one; one that is over comes last.

    Args:
        job_id: what `find` takes, or `None` for the one job that is not over.
        verb: what the person does.

    Raises:
        NoSuchJobError: none.
        UsageError: several are not over, and what was said does not tell which.
    """
    meant, is_exact = _meant(job_id) if job_id is not None else (directories(), False)
    names = {path.name for path in meant}
    open_jobs = [job for job in list_jobs() if not job.state.is_final and job.job_id in names]
    # One that no controller watches may be long gone, and counts where there is no other.
    known = [job for job in open_jobs if job.state is not JobState.UNKNOWN] or open_jobs
    if not known:
        return find(job_id or "last")
    if len(known) > 1 and not is_exact:
        raise UsageError(
            _("several jobs are running: {names}").format(names=listed([job.job_id for job in known], MAX_NAMES)),
            _("Say which: dttui {verb} JOB").format(verb=verb),
        )
    return JobDirectory.of(known[0].job_id)


def _meant(said: str) -> tuple[list[Path], bool]:
    """Return the jobs that somebody may mean, the newest first, and whether that one is meant where there are several.

    Raises:
        UsageError: nothing is said.
    """
    if not said:
        raise UsageError(
            _("the id of the job is empty"), _("Write one, or leave it out; `dttui ps --all` lists the jobs.")
        )
    every = directories()
    found, is_exact = [path for path in every if path.name == said], True
    if not found and said == "last":
        found = every
    elif not found:
        found = [path for path in every if _is_called(path, said)]
    if not found:
        found, is_exact = [path for path in every if path.name.startswith(said)], False
    return sorted(found, key=lambda path: _began_at(JobDirectory(path)), reverse=True), is_exact


def newest_called(name: str) -> JobDirectory | None:
    """Return the newest job of a name, whatever became of it; `None` where there is none."""
    found = [JobDirectory(path) for path in directories() if _MADE.sub("", path.name) == slug(name)]
    began = _beginnings([job for job in found if _head_name(job) == name])
    return max(began, key=lambda job: began[job], default=None)


def _head_name(directory: JobDirectory) -> str | None:
    with contextlib.suppress(OSError, ValueError):
        return str(_read_head(directory.plan).get("job_name"))
    return None


def _is_called(path: Path, name: str) -> bool:
    """Whether a job has that name, or one that comes to that in an id."""
    called = _MADE.sub("", path.name)
    return called == name or (called == slug(name) and summarize(JobDirectory(path)).name == name)


def runs_before(directory: JobDirectory) -> Iterator[JobDirectory]:
    """Yield the jobs of the same name that began before one, the newest first."""
    named = _MADE.sub("", directory.job_id)
    others = [JobDirectory(path) for path in directories() if _MADE.sub("", path.name) == named]
    began = _beginnings(others)
    earlier = [other for other in began if began[other] < began.get(directory, 0.0)]
    name = summarize_any(directory).name
    for other in sorted(earlier, key=lambda found: began[found], reverse=True):
        if summarize_any(other).name == name:  # Two names may come to one in an id.
            yield other


def summarize(directory: JobDirectory) -> JobSummary:
    """Tell where a job stands, from its files."""
    first = next(read_events(directory.events), None)
    last = newest_event(directory.events, EventKind.JOB_STATE)
    told: Sequence[Event] = ()
    if (last is None or not JobState(last.data.get("state")).is_final) and directory.has_controller():
        told = unwritten_events(directory.socket) or ()
        last = next((event for event in reversed(told) if event.kind is EventKind.JOB_STATE), last)
    state = JobState(last.data.get("state")) if last is not None else JobState.PENDING
    reason = last.message if last is not None else ""
    if not state.is_final and (silence := directory.silence(time.time())):
        state, reason = JobState.UNKNOWN, silence
    reason = _known_since(directory, state, last, told) or reason
    plan: dict[str, object] = {}
    with contextlib.suppress(OSError, ValueError):
        plan = _read_head(directory.plan)

    def number(name: str) -> int:
        found = plan.get(name)
        return found if isinstance(found, int) else 0

    return JobSummary(
        job_id=directory.job_id,
        name=str(plan.get("job_name", directory.job_id)),
        state=state,
        reason=reason,
        started_at=first.time if first is not None else None,
        ended_at=max(first.time, last.time) if first is not None and last is not None and state.is_final else None,
        nodes=number("node_count"),
        world_size=number("world_size"),
        framework=str(plan.get("framework", "")),
        gpus=number("gpu_count"),
        simulated_gpus=number("simulated_gpu_count"),
        attempts=_attempts(last) if last is not None else 0,
        cause=_cause(last) if state is JobState.FAILED else None,
        figures=figures_of(last.data) if last is not None and state.is_final else {},
    )


def _known_since(directory: JobDirectory, state: JobState, last: Event | None, told: Sequence[Event]) -> str:
    """Return what there is to say of a job in place of its last state's own words; empty where nothing."""
    if state in _WATCHED:
        events = chain(read_events(directory.events, *KINDS, EventKind.JOB_STATE), told)
        return trouble_of(state, _until_next_state(events, last), time.time())
    if last is not None and state is JobState.FAILED and (OUTCOME not in last.data or left_behind(last)):
        return Aftermath(read_events(directory.events, *LATER_KINDS)).reason
    return ""


def _until_next_state(events: Iterable[Event], last: Event | None) -> Iterator[Event]:
    """Return what was told but states, as far as it is of the last one that was read: another may have come since."""
    for event in events:
        if event.kind is not EventKind.JOB_STATE:
            yield event
        elif last is not None and event.seq > last.seq:
            return


def _attempts(last: Event) -> int:
    outcome = last.data.get(OUTCOME)
    newest = outcome.get("attempt", 0) if isinstance(outcome, dict) else last.attempt
    return newest + 1 if isinstance(newest, int) else 1


def _cause(last: Event | None) -> str | None:
    """Return the code of the cause that the end of a job names, as `AttemptOutcome.why` does."""
    if last is None:
        return None
    outcome = last.data.get(OUTCOME)
    for place in (last.data.get("first_failure"), outcome):
        if isinstance(place, dict) and isinstance(code := place.get("cause"), str):
            return code
    return None


def _read_head(path: Path) -> dict[str, object]:
    """Return the plain values of a plan and the number of its nodes, without holding the nodes in memory.

    A plan is written with indentation, a value a line, so that a line tells how deep it is.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged.
    """
    found: dict[str, object] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith('{"'):
                return _head_of(json.loads(line))
            match = _HEAD.match(line)
            if match is not None:
                with contextlib.suppress(ValueError):
                    found.setdefault(match[1], json.loads(match[2]))
            if len(found) == len(_HEAD_NAMES):
                break
    return found


def _head_of(plan: dict[str, object]) -> dict[str, object]:
    """Return the same of a plan that was written on one line."""
    total = plan.get("aggregate")
    return {**plan, **{name: total.get(name) for name in _TOTAL_NAMES if isinstance(total, dict)}}


def list_jobs() -> list[JobSummary]:
    """Return all jobs, the newest first; of one whose files cannot be read, that."""
    found = [summarize_any(JobDirectory(path)) for path in directories()]
    return sorted(found, key=lambda job: job.started_at or 0.0, reverse=True)


def summarize_any(directory: JobDirectory) -> JobSummary:
    """Tell where a job stands; of one whose files cannot be read, why not."""
    try:
        return summarize(directory)
    except OSError as fault:
        place, reason = fault.filename or directory.path, fault.strerror or fault
        text = _("cannot be read: {reason} ({path})").format(path=place, reason=reason)
    called, state = directory.job_id, JobState.UNKNOWN
    return JobSummary(called, called, state, text, None, None, 0, 0, "", 0, 0, attempts=0, cause=None, figures={})


def _beginnings(jobs: Iterable[JobDirectory]) -> dict[JobDirectory, float]:
    """Return when jobs began, of those whose files can be read."""
    found = {}
    for job in jobs:
        with contextlib.suppress(OSError):
            found[job] = _began_at(job)
    return found


def _began_at(directory: JobDirectory) -> float:
    """Return the Unix time of a job's first event; that of its submission where it has none yet."""
    first = next(read_events(directory.events), None)
    if first is not None:
        return first.time
    with contextlib.suppress(OSError):
        return directory.launch.stat().st_mtime
    return 0.0


def directories() -> list[Path]:
    """Return the directories of all jobs, in no order."""
    root = locations.jobs_directory()
    return [path for path in root.iterdir() if path.is_dir() and path.name[0] != "."] if root.is_dir() else []
