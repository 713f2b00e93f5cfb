"""What ranks reported, as the job's directory keeps it: the newest whole, and the older the thinner.

Each line tells where it came from, for a later controller.
"""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dtagent.protocol.events import Metric
from dtagent.protocol.rpc import to_wire
from pydantic import TypeAdapter, ValidationError

from dttui.engine.alerts.metric_watch import LOOK_BACK_REPORTS
from dttui.engine.copies.log_copy import Cursor
from dttui.files import cut_torn_line, thin_out
from dttui.jobs import JobDirectory
from dttui.jobs.backlog import Backlog
from dttui.jobs.curves import spread
from dttui.jobs.metrics import SOURCE

MOST_BYTES = 16 << 20
"""Of a job; some 70,000 reports."""
RECENT_BYTES = 4 << 20
"""At the end of the file, of which no report is left out."""
RETRY_BYTES = 1 << 20
MOST_UNWRITTEN_BYTES = 4 << 20
"""Kept in memory while they cannot be written; the hosts have the others."""
_METRIC = TypeAdapter(Metric)


@dataclass(frozen=True)
class ReportPlace:
    """Where a stream of reports is."""

    attempt: int
    node: str
    stream: str


@dataclass
class MetricsSoFar:
    """What a controller finds that comes after another one."""

    cursors: dict[ReportPlace, Cursor] = field(default_factory=dict)
    """Behind the last report that was kept of each stream."""
    metrics: list[tuple[ReportPlace, Metric]] = field(default_factory=list)
    """In order, of each rank as many as a watch looks back at."""


def takes_metrics(directory: JobDirectory, backlog: Backlog) -> bool:
    """Whether more reports may be kept; else they are to be asked for again once there is room."""
    return backlog.kept_bytes(directory.metrics) < MOST_UNWRITTEN_BYTES


def append_metric(
    directory: JobDirectory, metric: Metric, place: ReportPlace, cursor: Cursor, backlog: Backlog | None = None
) -> None:
    """Keep a report, together with where its line ends on the host: neither is there without the other."""
    source = [place.attempt, place.node, place.stream, cursor.offset, cursor.inode]
    line = json.dumps({**to_wire(metric), SOURCE: source})
    if not (backlog or Backlog()).append(directory.metrics, line):
        return
    size = directory.metrics.stat().st_size
    # Where there is no room for it, it is tried again when so much more has come.
    if size > MOST_BYTES and (size - len(line) - 1) // RETRY_BYTES < size // RETRY_BYTES:
        thin_out(directory.metrics, RECENT_BYTES, _evenly)


def read_metrics(directory: JobDirectory, attempt: int, *, is_written: bool = False) -> MetricsSoFar:
    """Return what was kept of an attempt; a line that a crash left unfinished is cut off.

    Args:
        directory: of the job.
        attempt: its number.
        is_written: whether reports of another attempt are kept meanwhile, whose last line may not be whole yet.
    """
    if not is_written:
        cut_torn_line(directory.metrics)
    found = MetricsSoFar()
    recent: defaultdict[int, deque[tuple[int, ReportPlace, Metric]]] = defaultdict(
        lambda: deque(maxlen=LOOK_BACK_REPORTS)
    )
    for index, body in enumerate(_bodies(directory)):
        with contextlib.suppress(ValidationError, KeyError, ValueError, TypeError):
            number, node, stream, offset, inode = body.pop(SOURCE)
            place = ReportPlace(number, node, stream)
            if number == attempt:
                metric = _METRIC.validate_python(body)
                recent[metric.rank].append((index, place, metric))
                found.cursors[place] = Cursor(offset, inode)
    in_order = sorted((item for items in recent.values() for item in items), key=lambda item: item[0])
    found.metrics = [(place, metric) for _index, place, metric in in_order]
    return found


def _evenly(reports: bytes) -> bytes:
    """Leave out half of each rank's reports, so that those that stay lie evenly."""
    series: defaultdict[tuple[object, ...], list[tuple[int, int]]] = defaultdict(list)
    lines = reports.split(b"\n")[:-1]
    for index, line in enumerate(lines):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            body = json.loads(line)
            number, node, stream, offset, _inode = body[SOURCE]
            series[body["rank"], number, node, stream].append((index, offset))
    kept = sorted(
        told[which][0]
        for told in series.values()
        for which in spread([offset for _index, offset in told], len(told) // 2)
    )
    return b"".join(lines[index] + b"\n" for index in kept)


def _bodies(directory: JobDirectory) -> Iterator[dict[str, Any]]:
    with contextlib.suppress(FileNotFoundError), directory.metrics.open("rb") as stream:
        for line in stream:
            with contextlib.suppress(ValueError):
                body = json.loads(line)
                if isinstance(body, dict):
                    yield body
