"""What ranks report: lines of `DTTUI_METRICS`, or those the agent made of logs, to metrics. Pure; it never raises."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

from dtagent.protocol.events import PER_GPU, REPORTED, Metric
from dtagent.protocol.rpc import FrameError, decode

from dttui.jobs.decoding import taken
from dttui.timestamps import timestamp_or

SOURCE = "source"
"""Beside a report's own fields in a job's directory: attempt, node, stream, and where its line ends on the host."""
MAX_EXTRA = 32
MAX_LINE_BYTES = 4096
"""A script writes a line in one write of at most so much; what is longer is no line of ours."""
MAX_QUOTED = 200
"""Characters of a line that are told to a person."""
_PLACES = ("step", "rank", "time")
"""Keys of a line that are no metric."""
_MOST_COUNT = 1 << 62
"""Of steps and ranks: no job has more."""


class MetricStream:
    """One node's lines, as their bytes arrive; it remembers what it could not use."""

    def __init__(self) -> None:
        self.unreadable = 0
        """Lines that are no JSON object."""
        self.first_unreadable = ""
        self.skipped_bytes = 0
        self.unread_lines = 0
        """Of the logs, what the agent did not look for metrics in."""
        self.dropped_patterns: tuple[str, ...] = ()
        """The job's own metrics whose expressions take too long, and are looked for no more."""
        self._rest = b""
        self._is_overlong = False

    def feed(self, data: bytes, lowest_rank: int, received: float, world_size: int = 1) -> list[Metric]:
        """Return the metrics of the lines that `data` completes.

        Args:
            data: the next bytes of the stream.
            lowest_rank: the node's, for a line that names no rank.
            received: Unix time, for a line that names none.
            world_size: the job's, for a speed that is told for each GPU.
        """
        return [metric for _end, metric in self.feed_placed(data, lowest_rank, received, world_size)]

    def feed_placed(
        self, data: bytes, lowest_rank: int, received: float, world_size: int = 1
    ) -> list[tuple[int, Metric]]:
        """Return the same, each with where in `data` its line ends."""
        *lines, rest = (self._rest + data).split(b"\n")
        end = -len(self._rest)
        found = []
        for line in lines:
            end += len(line) + 1
            body = None if self._is_overlong else _object(line)
            if body is not None and "at" in body:  # The agent's own note on how far it has read.
                self.skipped_bytes += int(_finite(body.get("skipped_bytes")) or 0)
                self.unread_lines += int(_finite(body.get("unread_lines")) or 0)
                self.dropped_patterns = _names(body.get("dropped_patterns")) or self.dropped_patterns
            elif body is not None:
                found.append((end, _metric(body, lowest_rank, received, world_size)))
            elif line.strip() and not self._is_overlong:
                self._miss(line)
            self._is_overlong = False
        if len(rest) > MAX_LINE_BYTES:
            if not self._is_overlong:
                self._miss(rest)
            self._is_overlong, rest = True, b""
        self._rest = rest
        return found

    def _miss(self, line: bytes) -> None:
        self.unreadable += 1
        self.first_unreadable = self.first_unreadable or _quoted(line)


def attempt_of(body: dict[str, Any]) -> int:
    """Return of which attempt a report is that was read from a job's directory; the first where it does not say."""
    source = body.get(SOURCE)
    return source[0] if isinstance(source, list) and source and isinstance(source[0], int) else 0


def parse_report(line: bytes) -> tuple[int, Metric] | None:
    """Decode a line of a job's metrics.jsonl: the attempt, and the report; `None` where it is torn or none."""
    try:
        body = decode(line)
        return attempt_of(body), taken(Metric, body)
    except (FrameError, ValueError):
        return None


def source_of(line: bytes) -> str:
    """Return from which node a line of it came; empty where it does not say."""
    with contextlib.suppress(FrameError, ValueError):
        source = decode(line).get(SOURCE)
        if isinstance(source, list) and len(source) > 1:
            return str(source[1])
    return ""


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _metric(body: dict[str, Any], lowest_rank: int, received: float, world_size: int) -> Metric:
    numbers = {key: number for key, value in body.items() if (number := _finite(value)) is not None}
    known = {REPORTED[key]: number for key, number in numbers.items() if key in REPORTED}
    if PER_GPU in numbers:
        known.setdefault("tokens_per_s", numbers[PER_GPU] * world_size)
    rest = [(key, number) for key, number in numbers.items() if key not in (*REPORTED, *_PLACES)]
    step, rank = numbers.get("step"), numbers.get("rank", lowest_rank)
    return Metric(
        rank=int(min(max(rank, -1), _MOST_COUNT)),
        step=None if step is None or abs(step) > _MOST_COUNT else int(step),
        time=timestamp_or(numbers.get("time", received), received),
        extra=dict(rest[:MAX_EXTRA]),
        not_finite=[REPORTED.get(key, key) for key, value in body.items() if _is_broken(key, value)][:MAX_EXTRA]
        or None,
        **known,
    )


def _names(value: Any) -> tuple[str, ...]:
    return tuple(str(name)[:MAX_QUOTED] for name in value[:MAX_EXTRA]) if isinstance(value, list) else ()


def _quoted(line: bytes) -> str:
    return line[: 4 * MAX_QUOTED].decode(errors="replace").strip()[:MAX_QUOTED]


def _is_broken(key: str, value: Any) -> bool:
    return (key in REPORTED or key.endswith("loss")) and isinstance(value, float) and not math.isfinite(value)


def _finite(value: Any) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
