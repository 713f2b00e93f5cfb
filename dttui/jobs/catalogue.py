"""All jobs of this login node, for who lists them again and again: what is known is read once, and what is new then."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dtagent.protocol.events import EventKind, JobState

from dttui.i18n import language
from dttui.jobs.aftermath import OUTCOME
from dttui.jobs.directory import JobDirectory
from dttui.jobs.event_log import newest_event, read_events
from dttui.jobs.following import GrowingFile, Version, version_of
from dttui.jobs.listing import JobEntry, JobSummary, directories, summarize_any
from dttui.jobs.plan_file import read_plan_file

FIRST_S, PACE_S = 0.2, 1.0
"""After so long a reader is shown what is known by then, at first and later."""
READ_BYTES = 128 * 1024
"""Of reports at once: nobody else computes meanwhile for longer than that takes."""
_RANK = re.compile(rb'"rank": ?(-?\d+)')
_STEP = re.compile(rb'"step": ?(-?\d+)')
_LOSS = re.compile(rb'"loss": ?(-?[0-9][0-9.eE+-]*)')


class LeastLoss:
    """The least loss and the last step in a job's reports, as they are written: only the lowest rank's count."""

    def __init__(self, path: Path) -> None:
        """Begin at the start of a job's metrics.jsonl."""
        self._file = GrowingFile(path, read_bytes=READ_BYTES)
        self._begin(None)

    def _begin(self, rank: int | None) -> None:
        self._rank = rank
        self.loss: float | None = None
        self.step: int | None = None
        """At which the loss was that."""
        self.last_step: int | None = None

    def read(self) -> bool:
        """Take in what is new, so much as is read at once; return whether there was anything."""
        lines = self._file.read()
        for line in lines:
            self._take(line)
        return bool(lines)

    def _take(self, line: bytes) -> None:
        """Take in one report, by a few patterns: to decode a million takes a minute."""
        told = _RANK.search(line)
        rank = int(told[1]) if told else 0
        if self._rank is None or rank < self._rank:
            self._begin(rank)
        if rank != self._rank:
            return
        found = _STEP.search(line)
        step = int(found[1]) if found else None
        if step is not None and (self.last_step is None or step > self.last_step):
            self.last_step = step
        reported = _LOSS.search(line)
        if reported is None:
            return
        try:
            loss = float(reported[1])
        except ValueError:
            return
        if self.loss is None or loss < self.loss:
            self.loss, self.step = loss, step


@dataclass
class _Known:
    """What was read of a job."""

    entry: JobEntry
    events: Version | None
    """As of which its summary was read."""
    told_in: str
    """Language of its summary."""
    seen: tuple[Version | None, Version | None] | None = None
    """As of which versions of plan and events the rest was."""
    reports: LeastLoss | None = None
    """Reads on; `None` before the first report."""
    metrics: Version | None = None


class JobCatalogue:
    """Reads where jobs stand, and then what stands in their files, the last that changed first."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._turn = threading.Lock()

    def looks(self) -> Iterator[list[JobEntry]]:
        """Yield all jobs as far as they are known: now and then while they are read, and once all are.

        Raises:
            OSError: where jobs are kept cannot be read.
        """
        with self._turn:
            yield from self._looks()

    def _looks(self) -> Iterator[list[JobEntry]]:
        found = sorted(directories(), key=_changed_at, reverse=True)
        names = {path.name for path in found}
        self._known = {name: known for name, known in self._known.items() if name in names}
        told_at, pace_s = time.monotonic(), FIRST_S
        for reads in (self._read_summary, self._read_rest):
            for path in found:
                for _part in reads(JobDirectory(path)):
                    if time.monotonic() - told_at >= pace_s:
                        yield self._entries()
                        told_at, pace_s = time.monotonic(), PACE_S
            yield self._entries()

    def _entries(self) -> list[JobEntry]:
        return [known.entry for known in self._known.values()]

    def _read_summary(self, directory: JobDirectory) -> Iterator[None]:
        version, known = version_of(directory.events), self._known.get(directory.job_id)
        if known is None:
            self._known[directory.job_id] = _Known(JobEntry(summarize_any(directory)), version, language())
            yield
        elif (known.events, known.told_in) != (version, language()) or not known.entry.summary.state.is_final:
            known.entry, known.events = replace(known.entry, summary=summarize_any(directory)), version
            known.told_in = language()
            yield

    def _read_rest(self, directory: JobDirectory) -> Iterator[None]:
        known = self._known[directory.job_id]
        seen = version_of(directory.plan), known.events
        if known.seen != seen:
            known.seen = seen
            nodes, error = _node_names(directory), _first_error(directory, known.entry.summary)
            known.entry = replace(known.entry, nodes=nodes, error=error)
            yield
        metrics = version_of(directory.metrics)
        if metrics == known.metrics:
            return
        reports = known.reports = known.reports or LeastLoss(directory.metrics)
        with contextlib.suppress(OSError):
            while reports.read():
                known.entry = replace(
                    known.entry, best_loss=reports.loss, best_step=reports.step, last_step=reports.last_step
                )
                yield
            known.metrics = metrics  # Whoever breaks off before has the rest read by the next look.


def _changed_at(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _node_names(directory: JobDirectory) -> tuple[str, ...]:
    with contextlib.suppress(OSError, ValueError):
        return tuple(node.name for node in read_plan_file(directory.plan).nodes)
    return ()


def _first_error(directory: JobDirectory, summary: JobSummary) -> str:
    """Return what the rank said that failed first in the last attempt; the first that was told, where nobody knows."""
    if summary.state is not JobState.FAILED:
        return ""
    with contextlib.suppress(OSError):
        last = newest_event(directory.events, EventKind.JOB_STATE)
        outcome = last.data.get(OUTCOME) if last is not None else None
        first = outcome.get("first_failure") if isinstance(outcome, dict) else None
        place = (first.get("node"), first.get("rank")) if isinstance(first, dict) else None
        failures = list(read_events(directory.events, EventKind.RANK_FAILED))
        newest = [event for event in failures if event.attempt == failures[-1].attempt]
        meant = [event for event in newest if (event.node, event.rank) == place] or newest
        return next((error for event in meant if isinstance(error := event.data.get("error"), str) and error), "")
    return ""
