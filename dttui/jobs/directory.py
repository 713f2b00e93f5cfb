"""The job directories on the login node: the one place that knows the file names in them, and how to find a job."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from dtagent.protocol.events import Event, EventKind, JobState

from dttui import locations
from dttui.errors import NoSuchJobError, UsageError
from dttui.files import OF_ANOTHER_VERSION, make_private
from dttui.i18n import _
from dttui.jobs.aftermath import KINDS as LATER_KINDS
from dttui.jobs.aftermath import OUTCOME, Aftermath, left_behind
from dttui.jobs.disturbances import KINDS, trouble_of
from dttui.jobs.event_log import newest_event, read_events
from dttui.jobs.figures import Figure, figures_of
from dttui.jobs.unwritten import unwritten_events
from dttui.words import listed

if TYPE_CHECKING:
    from dttui.jobs.launch_file import LaunchFile
    from dttui.planning.models import BoundPlan, Plan

LAUNCHER = "launcher"
"""Name of the process that starts the ranks of a node, where there is one; its log files have it as well."""
CLAIM_PATIENCE_S = 0.3
HEARTBEAT_S = 5.0
"""How often a controller gives a sign of life."""
STALLED_S = 20.0
"""After so long without one nothing is known of its job."""
PROBE_BYTES = 64 * 1024
"""Room that there must be for logs to be worth another look."""
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
MAX_FILE_NAME_BYTES = 120
"""Of a node's name in file names; file systems allow 255, endings included."""


@dataclass(frozen=True)
class JobDirectory:
    """The files of one job."""

    path: Path

    @property
    def job_id(self) -> str:
        """The directory's name."""
        return self.path.name

    @property
    def document(self) -> Path:
        """job.yaml as it was given."""
        return self.path / "job.yaml"

    @property
    def launch(self) -> Path:
        """What was known at the submission, and its controllers need besides: a `LaunchFile`."""
        return self.path / "launch.json"

    @property
    def plan(self) -> Path:
        """The plan."""
        return self.path / "plan.json"

    @property
    def events(self) -> Path:
        """All events, a line each."""
        return self.path / "events.jsonl"

    @property
    def metrics(self) -> Path:
        """What the ranks reported, a line each."""
        return self.path / "telemetry" / "metrics.jsonl"

    @property
    def socket(self) -> Path:
        """The controller's socket; connected to by its bare name, since paths have a limit of 107 bytes."""
        return self.path / "controller.sock"

    @property
    def lock(self) -> Path:
        """Held by the controller for as long as it lives."""
        return self.path / "controller.lock"

    @property
    def stop_request(self) -> Path:
        """What the controller was asked to do last, `stop` or `kill`; one that comes after it does the same."""
        return self.path / "stop"

    @property
    def controller_log(self) -> Path:
        """The controller's own log."""
        return self.path / "controller.log"

    def bound_plan(self, attempt: int) -> Path:
        """The plan of one attempt, without holes."""
        return self.path / "attempts" / str(attempt) / "plan.json"

    def files(self, attempt: int) -> Path:
        """The list of files that one attempt runs with, as `tree.encode_tree` writes it."""
        return self.path / "attempts" / str(attempt) / "files.json"

    def samples(self, node: str) -> Path:
        """Telemetry of one node, a line a sample."""
        return self.path / "telemetry" / f"{_file_name(node)}.jsonl"

    def logs(self, attempt: int, node: str) -> Path:
        """Directory of one node's log files: `<rank>.out`, `<rank>.err`, `launcher.out`, `launcher.err`."""
        return self.path / "logs" / str(attempt) / _file_name(node)

    def has_logs(self, attempt: int, node: str) -> bool:
        """Tell whether an attempt printed anything on a node."""
        with contextlib.suppress(OSError):
            return any(path.stat().st_size for path in self.logs(attempt, node).iterdir())
        return False

    def has_controller(self) -> bool:
        """Whether a controller owns the job now."""
        try:
            descriptor = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)  # Also on a disk that has become read-only.
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # Of two who look at once, neither sees the other.
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def claim(self) -> int | None:
        """Take the controller's lock; return its descriptor, or `None` where a controller has it.

        Raises:
            OSError: the directory cannot be written, or its file system has no locks.
        """
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + CLAIM_PATIENCE_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(descriptor)
                    return None
                time.sleep(0.01)  # Whoever only looks holds it for a moment.
            except OSError:
                os.close(descriptor)
                raise
            else:
                return descriptor

    def watched_until(self) -> float | None:
        """Return the Unix time of the controller's last sign of life; `None` where there never was one."""
        with contextlib.suppress(OSError):
            return self.lock.stat().st_mtime
        return None

    def silence(self, now: float) -> str:
        """Return in words why nobody knows at Unix time `now` what becomes of the job; empty where somebody does."""
        seen = self.watched_until()
        since = time.strftime("%F %T", time.localtime(seen)) if seen is not None else ""
        if not self.has_controller():
            if not since:
                return _("no controller watches this job")
            return _("no controller watches this job since {time}; `dttui attach {id}` finds out").format(
                time=since, id=self.job_id
            )
        # Where the disk has become read-only, the sign of life is one that the controller gives itself.
        if seen is not None and now - seen > STALLED_S and unwritten_events(self.socket) is None:
            text = _("the controller of this job has not run since {time}: it is stopped, or this machine slept")
            return text.format(time=since)
        return ""

    def has_room(self) -> bool:
        """Whether logs can be written here now."""
        try:
            import tempfile  # As below: who only looks needs none of these.

            with tempfile.TemporaryFile(dir=self.path / "logs") as probe:
                probe.write(bytes(PROBE_BYTES))
        except OSError:
            return False
        return True

    def is_over(self) -> bool:
        """Whether the job has an outcome."""
        return newest_event(self.events, EventKind.OUTCOME) is not None

    def read_launch(self) -> LaunchFile:
        """Return what was written at the submission.

        Raises:
            OSError: there is nothing.
            UsageError: it is of another version of dttui, or damaged.
        """
        from dttui.jobs.launch_file import read_launch_file  # With its inventory, whose models few verbs want.

        return read_launch_file(self.launch)

    def read_plan(self) -> Plan:
        """Return the job's plan. Raises OSError, or ValueError where it is damaged."""
        from dttui.planning.models import Plan  # As above.

        return Plan.model_validate_json(self.plan.read_bytes(), extra=OF_ANOTHER_VERSION)

    def read_bound_plan(self, attempt: int) -> BoundPlan:
        """Return the plan of one attempt. Raises OSError, or ValueError where it is damaged."""
        from dttui.planning.models import BoundPlan  # As above.

        return BoundPlan.model_validate_json(self.bound_plan(attempt).read_bytes(), extra=OF_ANOTHER_VERSION)

    def read_events(self, *kinds: EventKind) -> list[Event]:
        """Return the events written so far, all or those of some kinds; a torn last line is left out."""
        return list(read_events(self.events, *kinds))


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


def slug(name: str) -> str:
    """Return a job's name as paths and ids have it."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:32] or "job"


def create(name: str) -> JobDirectory:
    """Make the directory of a new job; its id is made of the name, the time and a few random letters."""
    path = root = locations.jobs_directory()
    try:
        make_private(root)
        path = _make_directory(root, slug(name))
        for inner in ("telemetry", "logs"):
            (path / inner).mkdir(mode=0o700)
    except OSError as error:
        if path != root:
            import shutil

            shutil.rmtree(path, ignore_errors=True)
        raise UsageError(
            _("cannot make {path}: {reason}").format(path=error.filename or path, reason=error.strerror),
            _("Free some room, or set XDG_STATE_HOME to a directory you may write to."),
        ) from error
    return JobDirectory(path)


def _make_directory(root: Path, begin: str) -> Path:
    """Make a directory of a name that no other job has."""
    while True:
        path = root / f"{begin}-{time.strftime('%m%d-%H%M%S')}-{os.urandom(2).hex()}"
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            return path


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
    meant, is_exact = _meant(job_id) if job_id is not None else (_directories(), False)
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
    return JobDirectory(locations.jobs_directory() / known[0].job_id)


def _meant(said: str) -> tuple[list[Path], bool]:
    """Return the jobs that somebody may mean, the newest first, and whether that one is meant where there are several.

    Raises:
        UsageError: nothing is said.
    """
    if not said:
        raise UsageError(
            _("the id of the job is empty"), _("Write one, or leave it out; `dttui ps --all` lists the jobs.")
        )
    every = _directories()
    found, is_exact = [path for path in every if path.name == said], True
    if not found and said == "last":
        found = every
    elif not found:
        found = [path for path in every if _is_called(path, said)]
    if not found:
        found, is_exact = [path for path in every if path.name.startswith(said)], False
    return sorted(found, key=lambda path: _began_at(JobDirectory(path)), reverse=True), is_exact


def _is_called(path: Path, name: str) -> bool:
    """Whether a job has that name, or one that comes to that in an id."""
    called = _MADE.sub("", path.name)
    return called == name or (called == slug(name) and summarize(JobDirectory(path)).name == name)


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
    if state in _WATCHED:
        reason = trouble_of(state, chain(read_events(directory.events, *KINDS), told), time.time()) or reason
    elif last is not None and (OUTCOME not in last.data or left_behind(last)) and state is JobState.FAILED:
        reason = Aftermath(read_events(directory.events, *LATER_KINDS)).reason or reason
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
        cause=_cause(last) if last is not None and state is JobState.FAILED else None,
        figures=figures_of(last.data) if last is not None and state.is_final else {},
    )


def _attempts(last: Event) -> int:
    outcome = last.data.get(OUTCOME)
    newest = outcome.get("attempt", 0) if isinstance(outcome, dict) else last.attempt
    return newest + 1 if isinstance(newest, int) else 1


def _cause(last: Event) -> str | None:
    """Return the code of the cause that the end of a job names, as `AttemptOutcome.why` does."""
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
    """Return all jobs, the newest first."""
    found = [summarize(JobDirectory(path)) for path in _directories()]
    return sorted(found, key=lambda job: job.started_at or 0.0, reverse=True)


def _began_at(directory: JobDirectory) -> float:
    """Return the Unix time of a job's first event; that of its submission where it has none yet."""
    first = next(read_events(directory.events), None)
    if first is not None:
        return first.time
    with contextlib.suppress(OSError):
        return directory.launch.stat().st_mtime
    return 0.0


def _directories() -> list[Path]:
    root = locations.jobs_directory()
    return [path for path in root.iterdir() if path.is_dir() and path.name[0] != "."] if root.is_dir() else []


def _file_name(node: str) -> str:
    """Return a node's name as a file name: what is not plain is written as its code point, a long one is cut."""
    plain = re.sub(r"[^A-Za-z0-9._-]|^\.", lambda match: f"~{ord(match[0]):x}", node)
    if len(plain) <= MAX_FILE_NAME_BYTES:
        return plain
    import hashlib

    mark = hashlib.sha256(node.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{plain[: MAX_FILE_NAME_BYTES - len(mark) - 1]}~{mark}"
