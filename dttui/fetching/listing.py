"""What a host has to be fetched, and where each file goes here: whatever a host names, it stays below the target."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.saved import MAX_FILES, FilesReply, FilesRequest, LeftOut, ListedPlace, is_unsafe

from dttui.agent_words import agent_text
from dttui.errors import HostError
from dttui.fetching.host_link import HostLink
from dttui.fetching.models import Listing, RemoteFile
from dttui.fetching.target import PART
from dttui.i18n import _, ngettext
from dttui.sanitize import clean
from dttui.words import listed

LOOK_S = 20.0
MOST_BYTES = 2**62
"""No file is larger."""
MOST_EXAMPLES = 3


@dataclass
class _Collected:
    """What the answers of a host come to."""

    places: list[ListedPlace] = field(default_factory=list)
    rows: list[tuple[int, str, int, int, int]] = field(default_factory=list)
    left_out: LeftOut = field(default_factory=LeftOut)
    is_whole: bool = True
    refused: int = 0
    """Rows that no honest agent sends."""


async def list_host(link: HostLink, key: AttemptKey, paths: Sequence[str]) -> Listing:
    """Return the files of a host: those of the paths, or what the attempt has saved where there are none."""
    found = _Collected()
    try:
        more = True
        while more:
            request = FilesRequest(key, list(paths), len(found.rows) + found.refused, LOOK_S)
            more = _take(found, await link.call("list_files", request, FilesReply))
    except HostError as error:
        return Listing(link.name, error=error.message, hint=error.hint)
    return _named(link.name, found)


def arranged(listings: Sequence[Listing], directories: Mapping[str, str]) -> list[Listing]:
    """Return the listings with a directory for each host, where several have files; what hosts share is one's alone.

    Args:
        listings: of each host.
        directories: what that of each host is called.
    """
    listings = _without_what_others_have(listings)
    first: dict[tuple[tuple[str, int, int, int], ...], str] = {}
    own: list[Listing] = []
    for listing in listings:
        by_place: dict[str, list[RemoteFile]] = {}
        for file in listing.files:
            by_place.setdefault(file.target.partition("/")[0], []).append(file)
        kept: list[RemoteFile] = []
        notes = list(listing.notes)
        for place, files in by_place.items():
            mark = tuple((item.source, item.size_bytes, item.time_ns, item.inode) for item in files)
            sharer = first.setdefault(mark, listing.node)
            if sharer == listing.node:
                kept += files
            else:
                text = _("{host}: {path} is the same directory as on {other}")
                notes.append(text.format(host=listing.node, path=clean(place), other=sharer))
        own.append(replace(listing, files=tuple(kept), notes=tuple(notes)))
    if sum(bool(listing.files) for listing in own) < 2:
        return own
    return [
        replace(
            listing,
            files=tuple(replace(file, target=f"{directories[listing.node]}/{file.target}") for file in listing.files),
        )
        for listing in own
    ]


def _without_what_others_have(listings: Sequence[Listing]) -> list[Listing]:
    """Return the listings in which that alone is missing which no host has; what one lacks and another has is noted."""
    answered = [listing for listing in listings if not listing.error]
    nowhere = set.intersection(*(set(listing.missing) for listing in answered)) if answered else set()
    return [
        replace(
            listing,
            missing={index: text for index, text in listing.missing.items() if index in nowhere},
            notes=(*(text for index, text in listing.missing.items() if index not in nowhere), *listing.notes),
        )
        for listing in listings
    ]


def _take(found: _Collected, reply: FilesReply) -> bool:
    """Take in an answer; return whether to ask for more."""
    found.places = found.places or list(reply.places)
    found.left_out, found.is_whole = reply.left_out, reply.is_whole and found.is_whole
    for row in reply.files:
        if len(found.rows) + found.refused >= MAX_FILES:
            found.is_whole = False
            return False
        if _is_sound(row, found.places):
            found.rows.append(row)
        else:
            found.refused += 1
    return reply.more and bool(reply.files)


def _is_sound(row: tuple[int, str, int, int, int], places: Sequence[ListedPlace]) -> bool:
    index, path, size, time_ns, _inode = row
    return (
        0 <= index < len(places)
        and not is_unsafe(path)
        and not any(part.startswith(PART) for part in path.split("/"))
        and posixpath.isabs(places[index].path)
        and "\0" not in places[index].path
        and 0 <= size <= MOST_BYTES
        and 0 <= time_ns <= MOST_BYTES
    )


def _named(node: str, found: _Collected) -> Listing:
    """Return the files with where they go: each source once, each target once."""
    names: dict[int, str] = {}
    files: dict[str, RemoteFile] = {}
    sources: set[str] = set()
    used = {index for index, *_rest in found.rows}
    for index, place in enumerate(found.places):
        if index in used:
            names[index] = _name_of(place, index, {name for name in names.values() if name})
    doubled = 0
    for index, path, size, time_ns, inode in found.rows:
        top = found.places[index].path
        source = f"{top.rstrip('/')}/{path}" if path else top
        target = "/".join(part for part in (names[index], path) if part)
        if source in sources:
            continue
        sources.add(source)
        if not target or target in files:
            doubled += 1
            continue
        files[target] = RemoteFile(node, source, target, size, time_ns, inode)
    refused = found.refused + doubled
    missing = {
        index: _("{host}: {message}").format(host=node, message=agent_text(place.detail, place.detail_notice))
        for index, place in enumerate(found.places)
        if place.detail
    }
    return Listing(node, tuple(files.values()), tuple(_notes(node, found, refused)), missing)


def _name_of(place: ListedPlace, index: int, taken: set[str]) -> str:
    """Return what a place is called here: as its host calls it where that can be, and no other is called so."""
    whole = posixpath.normpath(place.path).lstrip("/")
    for name in (place.name, whole):
        if name not in taken and not is_unsafe(name):
            return name
    return f"place-{index}"


def _notes(node: str, found: _Collected, refused: int) -> list[str]:
    left = found.left_out
    no_text = ngettext("{count} name that is no plain text", "{count} names that are no plain text", left.names)
    told = [
        (left.links, ngettext("{count} link", "{count} links", left.links)),
        (left.special, ngettext("{count} device or pipe", "{count} devices or pipes", left.special)),
        (left.names, no_text),
        (left.unreadable, ngettext("{count} unreadable directory", "{count} unreadable directories", left.unreadable)),
        (refused, ngettext("{count} file with an impossible name", "{count} files with impossible names", refused)),
    ]
    notes = []
    if parts := [text.format(count=count) for count, text in told if count > 0]:
        examples = [repr(item)[1:-1][:80] for item in left.examples[:MOST_EXAMPLES]]
        text = _("{host}: left out: {what}").format(host=node, what=listed(parts, len(parts)))
        notes.append(f"{text} ({listed(examples, MOST_EXAMPLES)})" if examples else text)
    if not found.is_whole:
        text = _("{host}: there is more than can be listed at once: name a directory below")
        notes.append(text.format(host=node))
    return notes
