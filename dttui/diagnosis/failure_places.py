"""Compares where ranks stood when they failed, by their tracebacks: most in one collective, and one elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from dtagent.protocol.stacks import Frame

from dttui.diagnosis.exceptions import crashed_frames, traceback_frames
from dttui.diagnosis.models import Failed
from dttui.diagnosis.standing import RankGroup, RankPlace, Standing, place_of_frames
from dttui.i18n import Message, joined, msg

MOST_COMPARED = 256
"""Ranks that are looked at."""
MOST_SAID = 4
"""Places that a sentence names."""


def places_of(failures: Iterable[Failed]) -> tuple[RankGroup, ...]:
    """Return where the ranks stood that failed, the largest group first; nothing where they stood at one place.

    What compiled code was at when it crashed counts like a traceback; a rank that left neither is not among them.
    """
    ranks: dict[RankPlace, dict[int, str]] = {}
    for failure in [item for item in failures if item.rank is not None][:MOST_COMPARED]:
        frames = _frames(failure)
        if failure.rank is not None and frames:
            ranks.setdefault(place_of_frames(frames), {})[failure.rank] = failure.node
    groups = (RankGroup(place, tuple(sorted(who.items()))) for place, who in ranks.items())
    found = tuple(sorted(groups, key=lambda group: (-len(group.ranks), group.ranks)))
    return found if len(found) > 1 else ()


def is_apart(places: Iterable[RankGroup]) -> bool:
    """Whether ranks were apart, and one of them in a collective or a library's call: there it may have waited."""
    standings = [group.place.standing for group in places]
    return len(standings) > 1 and any(item in (Standing.COLLECTIVE, Standing.CALL) for item in standings)


def sentence(said: Iterable[Message | str]) -> Message:
    """Return in one sentence that ranks stood at different places, and at which."""
    return msg("They did not stand at one place: {where}.", where=joined("; ", list(said)[:MOST_SAID]))


def _frames(failure: Failed) -> list[Frame]:
    """Return the calls that had not come back, the innermost first."""
    printed = [line.text for line in failure.lines]
    raised = traceback_frames((failure.traceback or "").splitlines() or printed)
    found = raised[::-1] or crashed_frames(printed)
    return [Frame(item.function or "<module>", item.file, item.line) for item in found]
