"""Follows what the ranks of an attempt print and keeps the metrics in it, until the script itself reports some."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dtagent.locations import AttemptFiles
from dtagent.logs.metric_files import MetricFiles
from dtagent.logs.own_metrics import OwnMetrics, add_own, patterns_of
from dtagent.logs.rank_streams import RankStreams
from dtagent.logs.step_pace import StepPace
from dtagent.logs.trainer_bars import MOST_BARS, Bar, bars, untitled_bar
from dtagent.logs.trainer_lines import SPEEDS, TrainerLines, plain
from dtagent.logs.trainer_search import MAX_LINE_BYTES, count_hints, some_spans, spans
from dtagent.system import untrusted_files

MAX_LAG_BYTES = 4 * 1024 * 1024
"""Of one stream that came since the last look; of more only the end is read, and the rest told as passed over."""
MAX_CATCH_UP_BYTES = 64 * 1024 * 1024
"""The same where a daemon takes over that was not there for a while: at its first look, or at the attempt's end."""
MARK_BYTES = 1024 * 1024
"""After so much without a metric a line is written all the same, so that a later daemon need not read it again."""
BLOCK_BYTES = 256 * 1024
METRICS_PER_S = 5.0
"""How many one rank may give in the long run; of more the newest are kept."""
BURST = 512
"""How many it may give at once, as when a buffer is flushed."""
LINES_PER_S = 500.0
"""Of one stream that are read for metrics in the long run, at 90 µs each; of more an even choice, and the newest."""
LINES_BURST = 2000
"""The same at once: a plot has no more points."""
LOOK_CPU_S = 0.15
"""Of one look at an attempt, of all its ranks together; of what is left then only the newest block is searched."""
LOWER_RANK_S = 60.0
"""For how long after a report of a lower rank those of a higher one are left out: they all tell the same."""
MOST_COUNTS = 8
"""Bars of different lengths that are followed at a time."""
TAIL_BYTES = 4 * 1024 * 1024
"""What is read of the own file to go on where it ended; more than one look writes."""


class Training:
    """What trainers print in the attempts of this host. For any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempts: dict[Path, _Attempt] = {}

    def look(self, files: AttemptFiles, *, is_over: bool = False) -> None:
        """Add the metrics that an attempt's ranks have printed since the last look to its file `trainer`.

        Args:
            files: the attempt's.
            is_over: nothing more will be printed: a last line without its end counts, and all is forgotten.

        Raises:
            OSError: the disk is full; nothing is lost, for the next look reads it again.
        """
        with self._lock:
            attempt = self._attempts.pop(files.directory, None) or _Attempt(files)
            try:
                attempt.look(time.time(), is_over=is_over)
            except BaseException:
                attempt.close()
                raise
            if is_over:
                attempt.close()
            else:
                self._attempts[files.directory] = attempt

    def look_at_all(self, running: list[AttemptFiles]) -> None:
        """Look at every attempt that runs, and forget those that no longer do. Raises OSError after all have been."""
        failure: OSError | None = None
        for files in running:
            try:
                self.look(files)
            except OSError as error:
                failure = error
        kept = {files.directory for files in running}
        with self._lock:
            for path in self._attempts.keys() - kept:
                self._attempts.pop(path).close()
        if failure is not None:
            raise failure


@dataclass
class _Count:
    """What the progress bars of one length have counted."""

    length: int
    rounds: int = 0
    """How often they began anew, as a bar for each epoch does."""
    position: int = 0
    steps_per_s: float | None = None
    steps: deque[int] = field(default_factory=lambda: deque(maxlen=MOST_BARS))
    """Shown since the last report."""

    def draw(self, bar: Bar) -> None:
        """Take in one of them."""
        self.rounds += bar.position < self.position
        if bar.position not in (0, self.position):
            self.steps.append(self.rounds * self.length + bar.position)
        self.position, self.steps_per_s = bar.position, bar.steps_per_s or self.steps_per_s

    def numbers(self, step: int) -> dict[str, float]:
        """Return what a report gets of them."""
        return {"step": step, **({} if self.steps_per_s is None else {"steps_per_s": self.steps_per_s})}


@dataclass
class _Rank:
    """What is known of one rank's printing."""

    readers: dict[str, TrainerLines] = field(default_factory=dict)
    redrawn: deque[tuple[int, Bar]] = field(default_factory=deque)
    """Look and bar of those that were drawn again: HF Trainer does so at each report, which names no step."""
    counts: dict[int, _Count] = field(default_factory=dict)
    """By the length of a bar; the one that was drawn last comes last."""
    bar_length: int | None = None
    """Of the bar that counts the training's steps; those of evaluations have another."""
    has_own_bars: bool = True
    """Whether a report may have a bar of its own: until one was waited for in vain."""
    held: int | None = None
    """Where a report begins that waits for its bar until the next look."""
    reported_at: float = float("-inf")
    """Monotonic seconds."""
    allowance: float = BURST
    withheld: list[dict[str, Any]] = field(default_factory=list)
    """The newest report, where none may be given now."""
    lines: dict[str, float] = field(default_factory=dict)
    """How many lines of each stream may be read."""
    last_step: int | None = None
    pace: StepPace = field(default_factory=StepPace)
    tells_speed: bool = False
    """Whether its lines do."""

    def draw(self, bar: Bar) -> None:
        """Take in a bar."""
        count = self.counts.pop(bar.length, None) or _Count(bar.length)
        if len(self.counts) >= MOST_COUNTS:
            del self.counts[next(iter(self.counts))]
        self.counts[bar.length] = count
        count.draw(bar)

    def time(self, reports: list[dict[str, Any]], now: float) -> None:
        """Give the newest report the steps a second since those before, where the trainer tells no speed."""
        self.tells_speed = self.tells_speed or any(name in report for report in reports for name in SPEEDS)
        newest = next((report for report in reversed(reports) if "step" in report), None)
        if newest is None or self.tells_speed:
            return
        pace = self.pace.take(newest["step"], now)
        if pace is not None:
            in_samples = any(reader.is_in_samples for reader in self.readers.values())
            newest["samples_per_s" if in_samples else "steps_per_s"] = pace

    def total(self, report: dict[str, Any], length: int) -> dict[str, float]:
        """Return the steps of the whole training, which HF Trainer's bar counts; another's may be of an epoch."""
        is_anew = length in self.counts and self.counts[length].rounds
        return {"total_steps": length} if {"epoch", "learning_rate"} <= report.keys() and not is_anew else {}

    def place(self, reports: list[dict[str, Any]]) -> None:
        """Give the losses without a step those that the bars showed meanwhile, evenly: nothing says which was whose."""
        losses = [report for report in reports if "loss" in report]
        unplaced = [report for report in losses if "step" not in report]
        length = self.bar_length or next((each for each in reversed(self.counts) if self.counts[each].steps), None)
        count = self.counts.get(length) if length is not None else None
        if count is None or not losses:
            return
        taken = 0
        for number, report in enumerate(unplaced, 1):
            at = number * len(count.steps) // len(unplaced)
            if at > taken:
                taken, self.bar_length = at, count.length
                report |= count.numbers(count.steps[at - 1]) | self.total(report, count.length)
        count.steps.clear()


class _Attempt:
    def __init__(self, files: AttemptFiles) -> None:
        self._files = files
        note = _resume(files.trainer)
        self._offsets: dict[str, int] = note.get("at", {})
        self._counted: dict[str, Any] = note.get("counted", {})
        self._metric_files = MetricFiles(files, note.get("file_step"))
        self._has_loss = note.get("has_loss", False)
        """Whether a line has told one."""
        self._is_over = note.get("is_over", False)
        """Whether the last look has been: files would tell again what they have told it."""
        self._marked = dict(self._offsets)
        """The offsets as they are on disk."""
        self._own = OwnMetrics(patterns_of(files))
        self._streams = RankStreams(files)
        self._caught_up: set[str] = set()
        self._ranks: dict[int, _Rank] = {}
        self._looks = 0
        self._looked_at = time.monotonic()
        self._skipped = self._unread = 0
        """Bytes that were not searched, and lines that were left out where many came."""
        self._is_sure = bool(self._offsets)
        """Whether the metrics are the trainer's alone."""

    def close(self) -> None:
        """End what it has started."""
        self._own.close()

    def look(self, now: float, *, is_over: bool) -> None:
        if _size(self._files.metrics):
            return  # The script reports itself, and better.
        self._looks += 1
        self._own.begin_look()
        self._until = time.thread_time() + LOOK_CPU_S
        elapsed_s, self._looked_at = time.monotonic() - self._looked_at, time.monotonic()
        found: list[dict[str, Any]] = []
        for number, streams in sorted(self._streams.names().items()):
            rank = self._ranks.setdefault(number, _Rank())
            rank.allowance = min(BURST, rank.allowance + elapsed_s * METRICS_PER_S)
            lower = [state for other, state in self._ranks.items() if other < number]
            if any(self._looked_at - state.reported_at < LOWER_RANK_S for state in lower):
                self._offsets.update({stream: _size(self._files.logs / stream) for stream in streams})
                continue
            reports: list[dict[str, Any]] = []
            # In this order: `.err` has the bars of the reports in `.out`.
            for stream in streams:
                rank.lines[stream] = min(LINES_BURST, rank.lines.get(stream, LINES_BURST) + elapsed_s * LINES_PER_S)
                reports += self._read(rank, stream, is_over=is_over)
            rank.place(reports)
            rank.time(reports, self._looked_at)
            # A bar that nobody took at this look or the one before was drawn for something else.
            rank.redrawn = deque(bar for bar in rank.redrawn if bar[0] == self._looks)
            if reports:
                rank.reported_at = self._looked_at
            if reports or rank.withheld:
                told = _merged([*rank.withheld, *reports])
                count = max(int(rank.allowance), int(is_over))
                kept = told[-count:] if count else []
                rank.withheld = [] if kept else told[-1:]
                rank.allowance -= len(kept)
                found += [{**report, "rank": self._streams.rank_of(number), "time": round(now, 3)} for report in kept]
        self._has_loss = self._has_loss or any("loss" in report for report in found)
        if self._ranks and not self._has_loss and not self._is_over:
            told = self._metric_files.look(self._looked_at, is_over=is_over)
            lowest = min(map(self._streams.rank_of, self._ranks))
            found += [{**report, "rank": lowest, "time": round(now, 3)} for report in told]
            self._is_sure = self._is_sure or bool(told)
        if found and not self._is_sure and not is_over:
            # A script may print before it reports itself: the next look reads all again and knows.
            self._is_sure, self._offsets, self._ranks, self._skipped = True, dict(self._marked), {}, 0
            self._unread = 0
            return
        self._is_over = self._is_over or is_over
        self._write(found)

    def _read(self, rank: _Rank, stream: str, *, is_over: bool) -> list[dict[str, Any]]:
        """Return the reports in what is new of a stream."""
        reports: list[dict[str, Any]] = []
        position = self._offsets.get(stream, 0)
        limit = MAX_LAG_BYTES
        if stream not in self._caught_up and (self._marked or is_over):
            limit = MAX_CATCH_UP_BYTES
        self._caught_up.add(stream)
        try:
            descriptor = untrusted_files.descriptor(self._files.logs / stream)
        except OSError:
            return []
        try:
            size = os.fstat(descriptor).st_size
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return []
            if size < position:
                position = 0  # The script emptied it.
            if size - position > limit:
                self._skipped += size - limit - position
                position = size - limit
            self._offsets[stream] = position
            for start, lines in _blocks(descriptor, position, size, is_over=is_over):
                # What is left is for all that comes, so that the last of it has its share.
                is_late = time.thread_time() > self._until
                is_newest = start + len(lines) > size - MAX_LINE_BYTES
                if is_late and not is_newest and limit == MAX_LAG_BYTES:
                    self._skipped += len(lines)
                    self._offsets[stream] = start + len(lines)
                    continue
                share = 0 if is_late else int(rank.lines[stream] * len(lines) / max(size - start, len(lines)))
                most = max(share, int(is_newest))
                before = len(reports)
                at, stop = self._of_lines(rank, stream, start, lines, reports, is_over=is_over, most=most)
                self._offsets[stream] = start + len(lines) if stop is None else stop
                searched = lines[: self._offsets[stream] - start]
                rank.last_step = add_own(self._own.search(searched), at, reports, before, rank.last_step)
                for bar in bars(searched[-MAX_LINE_BYTES:] if is_late else searched, plain):
                    rank.draw(bar)
                if stop is not None:
                    break
            else:
                # A bar has no end until it is drawn anew, which may take a step's time.
                last = os.pread(descriptor, min(MAX_LINE_BYTES, size - self._offsets[stream]), self._offsets[stream])
                for bar in bars(last, plain):
                    rank.draw(bar)
        finally:
            os.close(descriptor)
        return reports

    def _of_lines(
        self,
        rank: _Rank,
        stream: str,
        start: int,
        lines: bytes,
        reports: list[dict[str, Any]],
        *,
        is_over: bool,
        most: int,
    ) -> tuple[list[int], int | None]:
        """Add the reports of whole lines to `reports`.

        Returns:
            Where in the block each of them begins; and where in the file to stop, since a report's bar may still come.
        """
        at: list[int] = []
        reader = rank.readers.get(stream) or rank.readers.setdefault(stream, TrainerLines(self._counted.get(stream)))
        hints = count_hints(lines, in_table=reader.in_table)
        chosen = spans(lines, lambda: reader.in_table) if hints <= most else some_spans(lines, most)
        if hints > most:
            self._unread += max(lines.count(b"\n"), lines.count(b"\r"))
        for begin, end in chosen:
            if most > 1 and time.thread_time() > self._until:
                self._unread += lines.count(b"\n", begin) if hints <= most else 0
                break
            rank.lines[stream] = max(0.0, rank.lines[stream] - 1)
            self._unread -= hints > most
            line = lines[begin:end]
            bar = untitled_bar(plain(line)) if lines[max(0, begin - 2) : begin] == b"\r\r" else None
            if bar is not None:
                # The first of them is the training's; those of evaluations come later and have another length.
                rank.bar_length = rank.bar_length or bar.length
                if bar.length == rank.bar_length:
                    rank.redrawn.append((self._looks, bar))
                continue
            report: dict[str, Any] | None = reader.read(line)
            if report is None:
                continue
            if "step" not in report and "loss" in report:
                if rank.redrawn:
                    bar = rank.redrawn.popleft()[1]
                    report |= {"step": bar.position} | rank.total(report, bar.length)
                    report |= {"steps_per_s": bar.steps_per_s} if bar.steps_per_s else {}
                elif rank.held == start + begin:
                    rank.has_own_bars = not rank.counts
                elif rank.has_own_bars and not is_over and not reports:
                    rank.held = start + begin
                    return at, rank.held
            reports.append(report)
            at.append(begin)
        return at, None

    def _write(self, reports: list[dict[str, Any]]) -> None:
        """Append the reports and how far all is read in one write: a restart then loses and doubles nothing."""
        unmarked = sum(offset - self._marked.get(stream, 0) for stream, offset in self._offsets.items())
        unread, self._own.passed_over = max(self._unread, self._own.passed_over), 0
        if not reports and not self._skipped and not unread and unmarked < MARK_BYTES:
            return
        end: dict[str, Any] = {"at": self._offsets}
        if self._skipped:
            end["skipped_bytes"] = self._skipped
        if unread > 0:
            end["unread_lines"] = unread
        counted = {
            stream: state
            for rank in self._ranks.values()
            for stream, reader in rank.readers.items()
            if (state := reader.state) is not None
        }
        if counted:
            end["counted"] = counted
        if self._metric_files.last_step is not None:
            end["file_step"] = self._metric_files.last_step
        end |= {name: True for name in ("has_loss", "is_over") if getattr(self, f"_{name}")}
        if self._own.dropped:
            end["dropped_patterns"] = self._own.dropped
        data = "".join(json.dumps(item) + "\n" for item in (*reports, end)).encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(self._files.trainer, flags, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if os.write(descriptor, data) < len(data):
                os.ftruncate(descriptor, size)
                raise OSError(f"no room for {self._files.trainer}")
        finally:
            os.close(descriptor)
        self._marked, self._skipped, self._unread = dict(self._offsets), 0, 0


def _blocks(descriptor: int, position: int, size: int, *, is_over: bool) -> Iterator[tuple[int, bytes]]:
    """Yield offset and content of runs of whole lines; what was dropped from the file is passed over."""
    rest = b""
    while position < size:
        with contextlib.suppress(OSError):  # A file system that knows no holes has none.
            data_at = os.lseek(descriptor, position, os.SEEK_DATA)
            if data_at > position:
                position, rest = data_at, b""
        block = rest + os.pread(descriptor, min(BLOCK_BYTES, max(0, size - position)), position)
        start, position = position - len(rest), position - len(rest) + len(block)
        if len(block) == len(rest):
            break  # It was cut short meanwhile.
        whole = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        # A return may be the first half of a line's end, or of what says that a bar is drawn again.
        if (is_over and position >= size) or len(block) - whole > MAX_LINE_BYTES:
            whole = len(block)
        rest = block[whole:]
        if whole:
            yield start, block[:whole]


def _merged(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join what is said of one step in several lines; a bar that is drawn again says the same again."""
    merged: list[dict[str, Any]] = []
    of_step: dict[int | None, dict[str, Any]] = {}
    for report in reports:
        step = report.get("step")
        if merged and step is not None and merged[-1].get("step") == step:
            merged[-1].update(report)
            continue
        earlier = of_step.get(step) if step is not None else None
        if earlier is not None and earlier.keys() & report.keys() == {"step"}:
            earlier.update(report)  # Its bar was in the other stream.
            continue
        merged.append(report)
        of_step[step] = report
    return merged


def _resume(path: Path) -> dict[str, Any]:
    """Return the last note of how far all is read, and cut off what a daemon did not finish writing."""
    try:
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            tail = file.read()
            end = len(tail)
            while end > 0:
                end = tail.rfind(b"\n", 0, end)
                if end < 0:
                    break
                note = _note(tail[tail.rfind(b"\n", 0, end) + 1 : end])
                if note is not None:
                    file.truncate(size - len(tail) + end + 1)
                    return note
            file.truncate(0)
    except OSError:
        pass
    return {}


def _note(line: bytes) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        body = json.loads(line)
        step, counted = body.get("file_step"), body.get("counted")
        return {
            "at": {str(stream): int(offset) for stream, offset in body["at"].items()},
            "file_step": step if isinstance(step, int) else None,
            "counted": counted if isinstance(counted, dict) else {},
            **{name: body.get(name) is True for name in ("has_loss", "is_over")},
        }
    return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
