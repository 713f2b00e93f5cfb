"""Following a job by its directory, live or after the end: every client reads the same files."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from dtagent.protocol.events import Event, EventKind, Metric

from dttui.jobs.directory import JobDirectory
from dttui.jobs.event_log import parse_event
from dttui.jobs.log_masks import hidden
from dttui.jobs.log_times import start_since
from dttui.jobs.metrics import MAX_LINE_BYTES, parse_report
from dttui.jobs.plan_file import SeenPlan, read_plan_file
from dttui.jobs.sparse_files import kept_parts, missing_notice, next_kept, read_kept
from dttui.jobs.unwritten import ANSWER_S, Unwritten
from dttui.jobs.view import JobView
from dttui.redaction import NO_VALUES, Redaction

if TYPE_CHECKING:
    from dtagent.protocol.telemetry import HostSample
    from pydantic import TypeAdapter

READ_BYTES = 1 << 20
KEPT_LINES = 16
"""Newest lines that a reader remembers, to find its place in a file that took the place of the one before."""
RECALLED = 2000
"""Readings from before the first look, of all hosts together; a screen waits for them."""
LEAST_RECALLED, MOST_RECALLED = 4, 200
"""Of each."""
NEWEST_BYTES = 16 * 1024
"""At the end of a file, where its newest line nearly always is whole."""
Version = tuple[int, int, int]
"""A file's inode, time and size: it is read again once one of them is another."""


class GrowingFile:
    """Whole new lines of a file that grows."""

    def __init__(
        self,
        path: Path,
        *,
        last_bytes: int | None = None,
        last_lines: int | None = None,
        since: float | None = None,
        redaction: Redaction | None = None,
        read_bytes: int = READ_BYTES,
    ) -> None:
        """Read from the start, or of what is there at first only the end: so many lines or bytes, or since a time.

        Of a copy of a log what is secret is left out, where there is a `redaction`. Of `read_bytes` there are about so
        many in what comes at once; a line that is longer comes in parts.
        """
        self._path = path
        self._redaction = redaction
        self._read_bytes = read_bytes
        self._offset = 0
        self._inode: int | None = None
        self._newest: list[bytes] = []
        self._last_bytes = last_bytes
        self._last_lines = last_lines
        self._since = since
        self.is_untimed = False
        """Whether all of it was read although lines since a time were wanted, as none of them carries one."""

    def read(self, *, to_the_end: bool = False) -> list[bytes]:
        """Return the complete lines that came since the last call, at most about `read_bytes` of them.

        With `to_the_end` nothing more will be written, and what follows the last newline is a line too.
        """
        with contextlib.suppress(FileNotFoundError), self._path.open("rb", buffering=0) as stream:
            self._begin(stream, to_the_end=to_the_end)
            size = os.fstat(stream.fileno()).st_size
            start, data = read_kept(stream.fileno(), self._offset, self._read_bytes)
            dropped = self._dropped(stream, start)
            self._offset = start
            whole = data[: data.rfind(b"\n") + 1]
            is_last = len(data) < self._read_bytes and (to_the_end or start + len(data) < size)
            if data != whole and (is_last or (not whole and len(data) == self._read_bytes)):
                whole = data + b"\n"
                self._offset -= 1
            self._offset += len(whole)
            if self._redaction is not None and whole:
                whole = hidden(self._path, start, whole, self._redaction)
            lines = dropped + whole.split(b"\n")[:-1]
            short = [line for line in lines[-KEPT_LINES:] if len(line) <= MAX_LINE_BYTES]
            self._newest = (self._newest + short)[-KEPT_LINES:]
            return lines
        return []

    @property
    def offset(self) -> int:
        """Where in the file what comes next begins."""
        return self._offset

    def unread(self, *, to_the_end: bool = False) -> int:
        """Return how many lines there are to be read."""
        with contextlib.suppress(FileNotFoundError), self._path.open("rb", buffering=0) as stream:
            self._begin(stream, to_the_end=to_the_end)
            count, last = _lines_between(stream, self._offset, os.fstat(stream.fileno()).st_size)
            return count + (to_the_end and last not in (b"", b"\n"))
        return 0

    def pass_over(self, kept: int, *, to_the_end: bool = False) -> int:
        """Leave out what is unread but the last lines, so many and about 1 MiB at most; return how many that were."""
        with contextlib.suppress(FileNotFoundError), self._path.open("rb", buffering=0) as stream:
            self._begin(stream, to_the_end=to_the_end)
            before = self._offset
            self._offset = max(before, _start_of_last(stream, kept, to_the_end=to_the_end))
            if self._offset < os.fstat(stream.fileno()).st_size - READ_BYTES:
                self._skip(stream, READ_BYTES)
            return _lines_between(stream, before, self._offset)[0]
        return 0

    def _begin(self, stream: BinaryIO, *, to_the_end: bool) -> None:
        """Find the place to go on from; at the first look, the one to start at."""
        self._find_again(stream)
        if self._last_bytes is not None:
            self._skip(stream, self._last_bytes)
            self._last_bytes = None
        if self._last_lines is not None:
            self._offset = _start_of_last(stream, self._last_lines, to_the_end=to_the_end)
            self._last_lines = None
        if self._since is not None:
            start, self.is_untimed = start_since(stream, self._since)
            self._offset = max(self._offset, start)
            self._since = None

    def _dropped(self, stream: BinaryIO, start: int) -> list[bytes]:
        """Return what tells of bytes that were dropped before they could be read; of others the file itself tells."""
        if start == self._offset or next_kept(stream.fileno(), max(0, self._offset - 1)) < self._offset:
            return []
        return [missing_notice(start - self._offset).encode()]

    def _skip(self, stream: BinaryIO, last_bytes: int) -> None:
        start = os.fstat(stream.fileno()).st_size - last_bytes
        if start > 0:
            data = os.pread(stream.fileno(), READ_BYTES, start)
            self._offset = start + (data.find(b"\n") + 1 or len(data))

    def _find_again(self, stream: BinaryIO) -> None:
        """Go on where this was, in a file that took the place of the one before: the same, with lines left out."""
        inode = os.fstat(stream.fileno()).st_ino
        if self._inode not in (None, inode):
            self._offset, data = 0, b"\n" + stream.read()
            for line in reversed(self._newest):  # Those behind the newest one that is still there were left out.
                found = data.rfind(b"\n" + line + b"\n")
                if found >= 0:
                    self._offset = found + len(line) + 1
                    break
        self._inode = inode


def newest_line(path: Path) -> bytes | None:
    """Return the last complete line of a file, `None` where there is none."""
    with contextlib.suppress(OSError), path.open("rb", buffering=0) as stream:
        start = max(0, os.fstat(stream.fileno()).st_size - NEWEST_BYTES)
        pieces = (b"\n" + os.pread(stream.fileno(), NEWEST_BYTES, start)).rsplit(b"\n", 2)
        if len(pieces) == 3 and (pieces[0] or not start) and b"\0" not in pieces[1]:
            return pieces[1]
    for last_bytes in (NEWEST_BYTES, READ_BYTES):
        if lines := GrowingFile(path, last_bytes=last_bytes).read():
            return lines[-1]
    return None


def lines_throughout(path: Path, most: int) -> list[bytes]:
    """Return complete lines of a file, in order and evenly from all over it, at most so many."""
    found: list[bytes] = []
    with contextlib.suppress(OSError), path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        for number in range(most):
            start, end = number * size // most, stream.tell()
            if start < end:
                continue  # The line before reaches beyond.
            if start > end + size // most + 1:
                stream.seek(start - 1)
                stream.readline(READ_BYTES)
            line = stream.readline(READ_BYTES)
            if line.endswith(b"\n"):
                found.append(line)
    return found


def version_of(path: Path) -> Version | None:
    """Return what a file is told by from what it was before; `None` where there is none."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size
    return None


class JobFollower:
    """Keeps a JobView up to date from a job's files."""

    def __init__(self, directory: JobDirectory, *, reads_samples: bool = True) -> None:
        """Follow a job; without `reads_samples`, without what its hosts do now."""
        self.directory = directory
        self._context = contextvars.copy_context()
        """Of whom it reads for: the language in which events are told."""
        self._reads_samples = reads_samples
        self.view = JobView(directory.job_id)
        self._events = GrowingFile(directory.events)
        self._metrics = GrowingFile(directory.metrics)
        self._sample_versions: dict[str, Version] = {}
        self._plan_version: Version | None = None
        self._unwritten = Unwritten(directory.socket)
        self._ahead: list[Event] = []
        """What was told and is behind everything in the file."""
        self._taken: dict[int, float] = {}
        """Number → time of what was told and not read in the file yet."""

    def catch_up(self, *, with_reports: bool = False) -> list[Event]:
        """Read all that is there by now, and what the controller could not write down; return what was new.

        Of metrics only `with_reports`: the view has of them what is shown, and a job may have a million.
        """
        return self._context.copy().run(self._catch_up, with_reports)

    def _catch_up(self, with_reports: bool) -> list[Event]:
        new = self._read_all(with_reports)
        if not self.is_over:
            self._ahead += self._unwritten.read(ANSWER_S)
            new += self._read_all(with_reports)
        return new

    def _read_all(self, with_reports: bool) -> list[Event]:
        new: list[Event] = []
        while found := self.poll():
            new += found if with_reports else without_reports(found)
        return new

    def poll(self) -> list[Event]:
        """Read what is new into the view; return the new events, metrics among them as events of their own kind."""
        return self._context.copy().run(self._poll)

    def _poll(self) -> list[Event]:
        self._read_plan()
        self.view.keep_requests = self.directory.keep_requests()
        # Before the file is read: what the controller has told since is behind all that is in the file by then.
        self._ahead += self._unwritten.read()
        new = []
        for line in self._events.read():
            event = parse_event(line)
            if event is not None and self._taken.pop(event.seq, None) != event.time:
                self.view.apply(event)
                new.append(event)
        if not new:
            for event in self._ahead:
                self._taken[event.seq] = event.time
                self.view.apply(event)
                new.append(event)
            self._ahead = []
        for line in self._metrics.read():
            new.extend(self._metric(line))
        if self._reads_samples:
            self._read_samples()
        return new

    def _read_samples(self) -> None:
        """Take over the newest reading of each host; at first, some of those before as well."""
        found = {name: version for name in self.view.nodes if (version := version_of(self.directory.samples(name)))}
        changed = [name for name, version in found.items() if version != self._sample_versions.get(name)]
        if changed and not self._sample_versions:
            self._recall(changed)
        self._sample_versions |= found
        for name in changed:
            self._read_sample(name, newest_line(self.directory.samples(name)) or b"")
        if changed:
            self.view.see_samples()

    def _recall(self, names: Sequence[str]) -> None:
        """Read what hosts have done so far, of all about equally much."""
        most = min(MOST_RECALLED, max(LEAST_RECALLED, RECALLED // len(names)))
        lines = {name: lines_throughout(self.directory.samples(name), most) for name in names}
        for moment in range(most):
            for name in names:
                if moment < len(lines[name]):
                    self._read_sample(name, lines[name][moment])
            self.view.see_samples(before=True)

    def _read_sample(self, name: str, line: bytes) -> None:
        with contextlib.suppress(ValueError):
            self.view.nodes[name].sample = _samples().validate_json(line)

    @property
    def is_over(self) -> bool:
        """Whether the last event has been read."""
        return self.view.exit_code is not None

    def _read_plan(self) -> None:
        """Take over the plan where it is new: the controller writes it again once it knows the hosts."""
        with contextlib.suppress(OSError, ValueError):
            version = version_of(self.directory.plan)
            if version is None or version == self._plan_version:
                return
            plan = read_plan_file(self.directory.plan)
            self._plan_version = version
            self._take_plan(plan)

    def _take_plan(self, plan: SeenPlan) -> None:
        """Show another plan; of nodes that were in the one before the rest stays as it is known."""
        before = self.view.nodes
        self.view.set_plan(plan)
        for name, node in self.view.nodes.items():
            if name in before:
                self.view.nodes[name] = replace(before[name], plan=node.plan)

    def _metric(self, line: bytes) -> list[Event]:
        found = parse_report(line)
        if found is None:
            return []
        attempt, metric = found
        self.view.add_metric(metric, attempt)
        return [metric_event(metric, self.view.attempt)]


def without_reports(events: Iterable[Event]) -> list[Event]:
    """Return the events that are not metrics."""
    return [event for event in events if event.kind is not EventKind.METRIC]


def metric_event(metric: Metric, attempt: int) -> Event:
    """Return a report as an event of its own kind."""
    data = {name: value for name, value in vars(metric).items() if value is not None and name != "extra"}
    told = {**data, **metric.extra}
    return Event(-1, metric.time or 0.0, EventKind.METRIC, "", attempt, None, metric.rank, told)


@functools.cache
def _samples() -> TypeAdapter[HostSample]:
    """Return what reads samples: thousands a second, where hosts are many, of a job that is being watched."""
    from dtagent.protocol.telemetry import HostSample
    from pydantic import TypeAdapter

    return TypeAdapter(HostSample)


def tail(path: Path, lines: int) -> list[str]:
    """Return the last lines of a copy of a log, without what is secret; empty where there is no file."""
    try:
        with path.open("rb") as stream:
            start = stream.seek(max(0, path.stat().st_size - 64 * 1024))
            return hidden(path, start, stream.read(), NO_VALUES).decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def _start_of_last(stream: BinaryIO, lines: int, *, to_the_end: bool) -> int:
    """Return where the last so many lines begin; 0 where there are no more. With `to_the_end` one may be unfinished."""
    descriptor, wanted = stream.fileno(), lines + 1
    size = os.fstat(descriptor).st_size
    if to_the_end and size:
        wanted -= os.pread(descriptor, 1, size - 1) != b"\n"
    for start, end in reversed(kept_parts(descriptor)):
        position = end
        while position > start:
            length = min(READ_BYTES, position - start)
            position -= length
            block = os.pread(descriptor, length, position)
            found = block.count(b"\n")
            if found >= wanted:
                index = length
                for _each in range(wanted):
                    index = block.rfind(b"\n", 0, index)
                return position + index + 1
            wanted -= found
    return 0


def _lines_between(stream: BinaryIO, offset: int, end: int) -> tuple[int, bytes]:
    """Return how many lines end between two offsets, and the last byte there."""
    count, last = 0, b""
    while offset < end:
        start, data = read_kept(stream.fileno(), offset, READ_BYTES)
        data = data[: max(0, end - start)]
        if not data:
            break
        count += data.count(b"\n")
        offset, last = start + len(data), data[-1:]
    return count, last
