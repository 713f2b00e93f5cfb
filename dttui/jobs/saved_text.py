"""What attempts have written on their hosts, as events keep it and people are told: places, sizes, and when they go."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dtagent.protocol.events import Event

from dttui.i18n import _, ngettext
from dttui.jobs.decoding import taken
from dttui.words import listed, moment, size_text

PLACES, IS_KEPT = "places", "is_kept"
"""In the data of an event of kind `saved`."""
MOST_LINES = 8
"""Places that are told in words; the others are counted."""
MOST_HOSTS = 4
ALIKE_S, ALIKE_GOES_S = 60.0, 3600.0
"""By which hosts that have the same may differ in when it was written, and in when it goes."""


@dataclass(frozen=True)
class SavedFiles:
    """A directory, or a single file, in which an attempt has written something."""

    path: str
    """Absolute path on the host."""
    kind: str
    """Why it is one of the attempt's, a `PlaceKind`."""
    count: int
    """Files that are new or were changed."""
    size_bytes: int
    newest: float
    """Unix time, the login node's clock: the last change of any of them."""
    is_whole: bool = True
    """Whether all of it was looked at: there may be more."""
    goes_at: float | None = None
    """Unix time, the login node's clock, from which on the host's agent may remove it; `None` where it never does."""
    is_kept: bool = False
    """Whether its host keeps it all the same."""
    node: str = ""
    attempt: int = 0


def saved_of(event: Event) -> tuple[SavedFiles, ...]:
    """Return what an event tells; nothing of a torn one, or of another version's that has another form."""
    found: list[SavedFiles] = []
    with contextlib.suppress(ValueError):
        found = taken(list[SavedFiles], event.data.get(PLACES, []))
    node, attempt, is_kept = event.node or "", event.attempt or 0, bool(event.data.get(IS_KEPT))
    return tuple(replace(item, node=node, attempt=attempt, is_kept=is_kept) for item in found)


def saved_lines(saved: Sequence[SavedFiles], job_id: str) -> Iterator[str]:
    """Yield lines that tell what was saved where, the same of several hosts once, and how to get it.

    What the newest attempt saved comes first. Of a place that several attempts have written to, the newest word counts.
    """
    newest = max((item.attempt for item in saved), default=0)
    places: dict[tuple[str, str], SavedFiles] = {}
    for item in sorted(saved, key=lambda item: -item.attempt):
        places.setdefault((item.node, item.path), item)
    alike = _alike(places.values())
    for item, nodes in alike[:MOST_LINES]:
        line = _("saved: {hosts}:{path}  {what}; {until}").format(
            hosts=listed(nodes, MOST_HOSTS), path=item.path, what=what_text(item), until=_until(item)
        )
        yield line if item.attempt == newest else f"{line} (--attempt {item.attempt})"
    if (more := len(alike) - MOST_LINES) > 0:
        told = ngettext("… and {count} more place", "… and {count} more places", more).format(count=more)
        yield f"{told}: dttui fetch {job_id} --list"
    if alike:
        yield "  → " + _("dttui fetch {id} brings it here").format(id=job_id)


def what_text(item: SavedFiles) -> str:
    """Return how much there is in a place, and how new that is."""
    count = ngettext("{count} file", "{count} files", item.count).format(count=f"{item.count:,}")
    told = count if item.is_whole else _("at least {count}").format(count=count)
    return _("{files}, {size}, newest {time}").format(
        files=told, size=size_text(item.size_bytes), time=moment(item.newest)
    )


def _alike(places: Iterable[SavedFiles]) -> list[tuple[SavedFiles, list[str]]]:
    """Return places with the hosts that have the same there, written at about the same time."""
    groups: list[tuple[SavedFiles, list[str]]] = []
    known: dict[SavedFiles, list[tuple[SavedFiles, list[str]]]] = {}
    for item in places:
        same = known.setdefault(replace(item, node="", newest=0.0, goes_at=None), [])
        nodes = next((nodes for first, nodes in same if _is_of_one_time(first, item)), None)
        if nodes is None:
            group: tuple[SavedFiles, list[str]] = item, (nodes := [])
            same.append(group)
            groups.append(group)
        nodes.append(item.node)
    return groups


def _is_of_one_time(one: SavedFiles, other: SavedFiles) -> bool:
    if one.goes_at is None or other.goes_at is None:
        return one.goes_at is other.goes_at and abs(one.newest - other.newest) <= ALIKE_S
    return abs(one.newest - other.newest) <= ALIKE_S and abs(one.goes_at - other.goes_at) <= ALIKE_GOES_S


def _until(item: SavedFiles) -> str:
    if item.is_kept:
        return _("kept")
    if item.goes_at is None:
        return _("stays there until somebody removes it")
    return _("may go from {time} on, once newer jobs are there").format(time=moment(item.goes_at // 3600 * 3600))
