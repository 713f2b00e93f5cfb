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
    numbers = {key: value for key, value in body.items() if isinstance(key, str) and _is_number(value)}
    known = {_NAMES[key]: _finite(value) for key, value in numbers.items() if key in _NAMES}
    rest = {key: float(value) for key, value in numbers.items() if key not in _NAMES and key not in ("step", "rank")}
    extra = {key: value for key, value in list(rest.items())[:MAX_EXTRA] if math.isfinite(value)}
    return Metric(
        rank=int(_finite(numbers.get("rank")) or lowest_rank) if "rank" in numbers else lowest_rank,
        step=_whole(numbers.get("step")),
        **{**known, "time": known.get("time") or received},
        extra=extra,
    )


def is_broken(line: bytes) -> bool:
    """Whether the line reports a loss that is no finite number."""
    return b"NaN" in line or b"Infinity" in line


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _finite(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _whole(value: Any) -> int | None:
    return int(value) if value is not None and math.isfinite(value) else None
