"""Which process groups a node's ranks have formed: what they wrote themselves, which can be anything."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

from dtagent.locations import AttemptFiles, rank_of
from dtagent.protocol.jobs import MAX_NODE_RANKS
from dtagent.protocol.meeting import FormedGroup
from dtagent.system import untrusted_files

MOST_GROUPS = 4
"""Of one rank."""
MOST_NOTES = 8
MOST_KINDS = 256
"""Entries of one node, each of ranks that say the same: more say nothing that these do not."""
MOST_CHARACTERS = 64
_Kind = tuple[int, str, int, str, tuple[str, ...]]


def read(files: AttemptFiles) -> list[FormedGroup]:
    """Return what the ranks wrote, those together that wrote the same."""
    found: dict[_Kind, tuple[list[int], list[int]]] = {}
    records = sorted(
        (rank, path)
        for path in itertools.islice(files.ranks.glob("*.group.json"), MAX_NODE_RANKS)
        if (rank := rank_of(path.with_suffix(""))) is not None
    )
    for rank, path in records:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            for kind, place in _kinds(untrusted_files.read_object(path)):
                if kind in found or len(found) < MOST_KINDS:
                    ranks, places = found.setdefault(kind, ([], []))
                    ranks.append(rank)
                    places += [place] if place is not None else []
    told = []
    for (turn, backend, world_size, members, notes), (ranks, places) in found.items():
        with contextlib.suppress(ValueError):
            told.append(FormedGroup(ranks, places, backend, world_size, members, turn, list(notes)))
    return told


def _kinds(body: dict[str, Any]) -> Iterator[tuple[_Kind, int | None]]:
    """Yield what a record says, and the rank's place in each group."""
    notes = tuple(_text(note) for note in body["notes"][:MOST_NOTES])
    groups = body["groups"][-MOST_GROUPS:]
    if not groups:
        yield (0, "", 0, "", notes), None
    for turn, group in enumerate(groups):
        kind = (turn, _text(group["backend"]), _count(group["world_size"]), _text(group["members"]), notes)
        yield kind, _count(group["rank"])


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value[:MOST_CHARACTERS]


def _count(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("not a number")
    return value
