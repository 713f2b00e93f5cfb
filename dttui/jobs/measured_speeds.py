"""How fast each host's ranks compute, by what they told in the newest attempt that says so. It never raises."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from dttui.jobs.metrics import parse_report, source_of

OWN_SPEED = "rank_samples_per_s"
"""Key of a report: samples a second that its rank computes while it waits for no other."""
_MOST_READ = 1 << 20
"""Bytes of the newest reports."""


def measured_speeds(reports: Iterable[Path]) -> dict[str, float]:
    """Return node → samples a second of a rank there, the median; empty where no rank has told.

    Args:
        reports: metrics.jsonl of jobs, each of which has gone on from those before.
    """
    for path in reversed([*reports]):
        if found := _told(path):
            return found
    return {}


def _told(path: Path) -> dict[str, float]:
    told: defaultdict[int, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with contextlib.suppress(OSError), path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - _MOST_READ))
        for line in stream:
            found = parse_report(line)
            speed = found[1].extra.get(OWN_SPEED) if found is not None else None
            if found is not None and speed is not None and 0 < speed < math.inf:
                told[found[0]][source_of(line)].append(speed)
    return {node: median(speeds) for node, speeds in told[max(told)].items()} if told else {}
