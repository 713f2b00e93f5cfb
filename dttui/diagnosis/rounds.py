"""Which lines of an elastic launcher's log are of its last round: what torchrun wrote before explains no later end."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dtagent.protocol.events import Event, EventKind

from dttui.diagnosis.models import LogLine

SLACK_S = 1.0
"""How much later than its first lines a round may have been told of."""
_STAMP = re.compile(r"(?:\[[^\]]{1,40}\]:? ?)?[DIWEFC](?P<day>[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2})[. ]")
"""How torch begins a line: `E1121 21:37:55.123`."""


@dataclass(frozen=True)
class Rounds:
    """When torchrun numbered the ranks of a node in an attempt."""

    began_at: float
    """Unix time of the attempt's begin."""
    numbered_at: tuple[float, ...]
    """Unix times; more than one where it started the ranks again."""
    offset_s: float
    """By how much the host's clock is ahead."""

    def last(self, lines: Sequence[LogLine], until: float = math.inf) -> tuple[LogLine, ...]:
        """Return what a launcher printed in the last round before a Unix time; what has no time counts to what follows.

        A time in a log is of the host's clock and says neither year nor zone: it is taken for one of this machine's
        zone, and for none where the attempt had not begun by then.
        """
        rounds = [moment for moment in self.numbered_at if moment <= until]
        if len(rounds) < 2:
            return tuple(lines)
        begin, end = self.began_at - SLACK_S, rounds[-1] - SLACK_S
        moments = [_timestamp(line.text, end) for line in lines]
        stale = [
            index
            for index, moment in enumerate(moments)
            if moment is not None and begin <= moment - self.offset_s < end
        ]
        return tuple(lines[stale[-1] + 1 :] if stale else lines)


def rounds_of(events: Iterable[Event], attempt: int, offsets_s: Mapping[str, float]) -> dict[str, Rounds]:
    """Return what an attempt's events tell of each node.

    Args:
        events: of the job.
        attempt: its number.
        offsets_s: node → by how much its clock is ahead.
    """
    own = [event for event in events if event.attempt == attempt]
    numbered: dict[str, list[float]] = {name: [] for name in offsets_s}
    for event in own:
        if event.kind is EventKind.RANKS and event.node in numbered:
            numbered[event.node].append(event.time)
    began_at = own[0].time if own else 0.0
    return {name: Rounds(began_at, tuple(times), offsets_s[name]) for name, times in numbered.items()}


def _timestamp(text: str, near: float) -> float | None:
    """Return the Unix time, by the host's clock, that a line begins with, of the year that is nearest."""
    match = _STAMP.match(text)
    if match is None:
        return None
    year = datetime.fromtimestamp(near).year
    found = []
    for of_year in (year - 1, year):
        try:
            found.append(datetime.strptime(f"{of_year}{match['day']}", "%Y%m%d %H:%M:%S").timestamp())
        except (ValueError, OverflowError):
            continue
    return min(found, key=lambda moment: abs(moment - near), default=None)
