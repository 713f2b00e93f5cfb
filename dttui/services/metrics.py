"""What a script reports: lines of `DTTUI_METRICS` to metrics. Pure; whatever a line holds, it never raises."""

from __future__ import annotations

import json
import math
from typing import Any

from dtagent.protocol.events import Metric

_NAMES = {
    "loss": "loss",
    "learning_rate": "learning_rate",
    "lr": "learning_rate",
    "samples_per_s": "samples_per_s",
    "tokens_per_s": "tokens_per_s",
    "gradient_norm": "gradient_norm",
    "grad_norm": "gradient_norm",
    "epoch": "epoch",
    "time": "time",
}
MAX_EXTRA = 32
MAX_LINE_BYTES = 4096
"""A script writes a line in one write of at most so much; what is longer is no line of ours."""
MAX_QUOTED = 200
"""Characters of a line that are told to a person."""


class MetricStream:
    """The lines of one node's `DTTUI_METRICS`, as their bytes arrive; it remembers what it could not use."""

    def __init__(self) -> None:
        self.unreadable = 0
        """Lines that are no JSON object."""
        self.first_unreadable = ""
        self.broken = ""
        """The first line that reported a loss which is no number."""
        self._rest = b""
        self._is_overlong = False

    def feed(self, data: bytes, lowest_rank: int, received: float) -> list[Metric]:
        """Return the metrics of the lines that `data` completes; the rest is as for `parse_line`."""
        *lines, rest = (self._rest + data).split(b"\n")
        found = []
        for line in lines:
            metric = None if self._is_overlong else parse_line(line, lowest_rank, received)
            if metric is not None:
                found.append(metric)
                if is_broken(line):
                    self.broken = self.broken or _quoted(line)
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


def parse_line(line: bytes, lowest_rank: int, received: float) -> Metric | None:
    """Decode one line; `None` where it is no JSON object.

    Args:
        line: without the newline.
        lowest_rank: the node's, for a line that names no rank.
        received: Unix time, for a line that names none.
    """
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    numbers = {key: number for key, value in body.items() if (number := _finite(value)) is not None}
    known: dict[str, Any] = {_NAMES[key]: number for key, number in numbers.items() if key in _NAMES}
    rest = [(key, number) for key, number in numbers.items() if key not in _NAMES and key not in ("step", "rank")]
    step, rank = numbers.get("step"), numbers.get("rank", lowest_rank)
    return Metric(
        rank=int(rank),
        step=None if step is None else int(step),
        extra=dict(rest[:MAX_EXTRA]),
        **{"time": received, **known},
    )


def is_broken(line: bytes) -> bool:
    """Whether the line reports a loss that is no finite number."""
    return b"NaN" in line or b"Infinity" in line


def _quoted(line: bytes) -> str:
    return line[: 4 * MAX_QUOTED].decode(errors="replace").strip()[:MAX_QUOTED]


def _finite(value: Any) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
