"""What has happened in a job, in the order of time: events, reports, readings of hosts, lines of ranks.

Each kind has files of its own, with clocks of their own: an event has the login node's, a reading its host's, and of a
line that carries no time only the place between two others is known. All is told in the login node's time.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dtagent.protocol.events import Event, EventKind, JobState, Metric

from dttui.jobs.directory import JobDirectory
from dttui.jobs.event_log import read_events
from dttui.jobs.following import GrowingFile
from dttui.jobs.log_following import LogLines, log_files
from dttui.jobs.log_times import line_time
from dttui.jobs.metrics import parse_report, source_of
from dttui.jobs.plan_file import read_plan_file
from dttui.redaction import NO_VALUES, Redaction
from dttui.timestamps import timestamp_or

READ_BYTES = 64 * 1024
"""Of a file at once: a job has as many files as hosts, and thousands of logs."""
Takes = Callable[[str, str], bool]
"""Whether the log of a process is wanted, by its name and `out` or `err`."""
_STARTED = (JobState.RENDEZVOUS.value, JobState.RUNNING.value)
_TIME = re.compile(rb'"time": ?(-?[0-9.eE+]+)')


@dataclass(frozen=True)
class PastReport:
    """What a rank reported."""

    attempt: int
    metric: Metric
    line: bytes
    """As the job's directory has it."""


@dataclass(frozen=True)
class PastReading:
    """What a host read."""

    node: str
    line: bytes
    """A `HostSample`."""


@dataclass(frozen=True)
class Moment:
    """One thing that happened."""

    time: float
    """Unix time, the login node's clock."""
    what: Event | PastReport | PastReading | LogLines


@dataclass
class _Course:
    """What the events of a job say of its time."""

    begin: float = 0.0
    end: float = 0.0
    attempts: dict[int, list[float]] = field(default_factory=dict)
    """The first and last event of each."""
    started: dict[int, float] = field(default_factory=dict)
    """Attempt → when its processes had been started, of one that came so far."""
    offsets: dict[str, float] = field(default_factory=dict)
    """Node → its clock minus ours, as it was when it was reached last."""
    nodes: list[str] = field(default_factory=list)


class Past:
    """Tells all of a job from its beginning, up to what is there now.

    Args:
        directory: of the job.
        takes: which logs are wanted; without it none.
        redaction: leaves out of them what is secret.
        only_logs_of: the attempt and the node whose logs are told, and nothing else.
    """

    def __init__(
        self,
        directory: JobDirectory,
        takes: Takes | None = None,
        redaction: Redaction = NO_VALUES,
        only_logs_of: tuple[int, str] | None = None,
    ) -> None:
        self._directory = directory
        self._takes = takes
        self._redaction = redaction
        self._course = _read_course(directory)
        self._rest = self._merged(only_logs_of)
        self._next: Moment | None = next(self._rest, None)

    @property
    def begin(self) -> float:
        """Unix time of the first event; 0 where there is none."""
        return self._course.begin

    @property
    def end(self) -> float:
        """Unix time of the last one."""
        return self._course.end

    @property
    def first_attempt(self) -> int:
        """Number of the first attempt that anything was told of."""
        return min(self._course.attempts, default=0)

    @property
    def next_time(self) -> float | None:
        """When the next thing happened; `None` once everything was told."""
        return self._next.time if self._next is not None else None

    def until(self, moment: float) -> Iterator[Moment]:
        """Yield what happened up to a Unix time and was not told yet."""
        while self._next is not None and self._next.time <= moment:
            told, self._next = self._next, next(self._rest, None)
            yield told

    def _merged(self, only_logs_of: tuple[int, str] | None) -> Iterator[Moment]:
        """Yield all; of the same time what an event is about comes before it, so that an end is told last."""
        course = self._course
        if only_logs_of is not None:
            attempt, node = only_logs_of
            return heapq.merge(*self._logs(attempt, [node]), key=lambda moment: moment.time)
        streams: list[Iterator[Moment]] = [self._readings(node) for node in course.nodes]
        streams.append(self._reports())
        for attempt in course.attempts if self._takes is not None else ():
            streams += self._logs(attempt, self._nodes_of(attempt))
        streams.append(_events(self._directory, course))
        return heapq.merge(*streams, key=lambda moment: moment.time)

    def _readings(self, node: str) -> Iterator[Moment]:
        offset_s = self._course.offsets.get(node, 0.0)
        when = self._course.begin
        for _place, line in _lines(GrowingFile(self._directory.samples(node), read_bytes=READ_BYTES)):
            found = _TIME.search(line)
            with contextlib.suppress(ValueError):
                told = float(found[1]) - offset_s if found else when
                when = self._within(told, when)
                yield Moment(when, PastReading(node, line))

    def _reports(self) -> Iterator[Moment]:
        when = self._course.begin
        for _place, line in _lines(GrowingFile(self._directory.metrics, read_bytes=READ_BYTES)):
            found = parse_report(line)
            if found is None:
                continue
            attempt, metric = found
            told = metric.time if metric.time is not None else when
            first, last = self._course.attempts.get(attempt, (self.begin, self.end))
            if not first <= told <= last:  # A script's own time is its host's.
                other = told - self._course.offsets.get(source_of(line), 0.0)
                told = other if first <= other <= last else told
            when = self._within(told, when)
            yield Moment(when, PastReport(attempt, metric, line))

    def _nodes_of(self, attempt: int) -> list[str]:
        with contextlib.suppress(OSError, ValueError):
            return [node.name for node in read_plan_file(self._directory.bound_plan(attempt)).nodes]
        return list(self._course.nodes)

    def _logs(self, attempt: int, nodes: Sequence[str]) -> Iterator[Iterator[Moment]]:
        for node in nodes:
            for path in log_files(self._directory.logs(attempt, node)):
                if self._takes is not None and self._takes(path.stem, path.suffix[1:]):
                    yield self._log(attempt, node, path)

    def _log(self, attempt: int, node: str, path: Path) -> Iterator[Moment]:
        """Yield the lines of a log. One without a time lies as far between two others as its bytes do."""
        when, last = self._course.attempts.get(attempt, (self.begin, self.end))
        when = self._course.started.get(attempt, when)
        size = 0
        with contextlib.suppress(OSError):
            found = path.stat()
            size, last = found.st_size, min(max(found.st_mtime, when), last)
        offset_s, before = self._course.offsets.get(node, 0.0), 0
        reader = GrowingFile(path, redaction=self._redaction, read_bytes=READ_BYTES)
        for place, line in _lines(reader, to_the_end=True):
            told = line_time(line)
            if told is not None:
                when, before = min(max(told - offset_s, when), last), place
            share = (place - before) / max(1, size - before)
            at = when + (last - when) * min(max(share, 0.0), 1.0)
            yield Moment(at, LogLines(node, path.stem, path.suffix[1:], [line], 0, False))

    def _within(self, told: float, before: float) -> float:
        """Return a time that is none before another one of the same file, and within the job's."""
        return min(max(timestamp_or(told, before), before), self._course.end)


def _events(directory: JobDirectory, course: _Course) -> Iterator[Moment]:
    when = course.begin
    for event in read_events(directory.events):
        when = min(max(timestamp_or(event.time, when), when), course.end)
        yield Moment(when, event)


def _read_course(directory: JobDirectory) -> _Course:
    found = _Course()
    with contextlib.suppress(OSError, ValueError):
        found.nodes = [node.name for node in read_plan_file(directory.plan).nodes]
    when: float | None = None
    is_over = False
    names = dict.fromkeys(found.nodes)
    for event in read_events(directory.events):
        when = max(timestamp_or(event.time, when or 0.0), when or 0.0)
        found.begin, found.end = found.begin or when, when
        if event.attempt is not None:
            found.attempts.setdefault(event.attempt, [when, when])[1] = when
            if event.kind is EventKind.JOB_STATE and event.data.get("state") in _STARTED:
                found.started.setdefault(event.attempt, when)
        is_over = is_over or event.kind is EventKind.OUTCOME
        offset = event.data.get("clock_offset_s")
        if event.node is not None:
            names[event.node] = None
            if isinstance(offset, (int, float)) and math.isfinite(offset):
                found.offsets[event.node] = float(offset)
    found.nodes = list(names)
    if not is_over and when is not None:  # Hosts and ranks go on to tell where nothing else happens.
        written = map(_written_at, (directory.metrics, *map(directory.samples, found.nodes)))
        found.end = max(found.end, *written)
        if found.attempts:
            found.attempts[max(found.attempts)][1] = found.end
    return found


def _written_at(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _lines(reader: GrowingFile, *, to_the_end: bool = False) -> Iterator[tuple[int, bytes]]:
    """Yield lines, each with where it ends in the file."""
    place = 0
    while lines := reader.read(to_the_end=to_the_end):
        place = reader.offset - sum(len(line) + 1 for line in lines)
        for line in lines:
            place += len(line) + 1
            yield place, line


def chosen(ranks: Sequence[int] | str) -> Takes:
    """Return what takes the logs of ranks, or of all processes."""
    return lambda process, _stream: ranks == "all" or process in map(str, ranks)
