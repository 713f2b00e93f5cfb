"""What a host has to be fetched, and where each file goes here: whatever a host names, it stays below the target."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.rpc import ErrorCode
from dtagent.protocol.saved import (
    MAX_ASKED,
    MAX_FILES,
    MAX_PLACES,
    FilesReply,
    FilesRequest,
    LeftOut,
    ListedPlace,
    is_unsafe,
)

from dttui.agent_words import agent_text
from dttui.errors import AgentError, HostError
from dttui.fetching.host_link import HostLink
from dttui.fetching.models import Listing, RemoteFile
from dttui.fetching.target import PART
from dttui.i18n import _, ngettext
from dttui.sanitize import clean
from dttui.words import listed

LOOK_S = 20.0
MOST_LISTING_S = 300.0
"""For all answers of one host."""
MOST_PLACES = max(MAX_ASKED, 2 * MAX_PLACES)
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

    def add(self, other: _Collected) -> None:
        """Add what the host has told of other places."""
        first = len(self.places)
        self.places += other.places
        self.rows += [(index + first, path, size, time, inode) for index, path, size, time, inode in other.rows]
        left = zip(astuple(self.left_out), astuple(other.left_out), strict=True)
        self.left_out = LeftOut(*(one + another for one, another in left))
        self.is_whole, self.refused = self.is_whole and other.is_whole, self.refused + other.refused


async def list_host(link: HostLink, key: AttemptKey, paths: Sequence[str], told: Sequence[str] = ()) -> Listing:
    """Return the files of a host.

    Args:
        link: to it.
        key: of the attempt.
        paths: whose files; where there are none, what the attempt has saved.
        told: absolute paths that the attempt has saved to as it said at its end, where nothing else is asked for: its
            host may have cleared away by now what leads there.
    """
    try:
        try:
            found = await asyncio.wait_for(_collected(link, key, paths), MOST_LISTING_S)
        except AgentError as error:
            if error.code != ErrorCode.NO_SUCH_ATTEMPT or not told:
                raise
            found = _Collected()
        known = [place.path.rstrip("/") + "/" for place in found.places]
        left = [path for path in told if not any(f"{path}/".startswith(place) for place in known)]
        if left and not paths:
            found.add(await asyncio.wait_for(_collected(link, key, left), MOST_LISTING_S))
    except HostError as error:
        return Listing(link.name, error=error.message, hint=error.hint)
    except asyncio.TimeoutError:
        message = _("{host}: what it has to be fetched takes too long to list").format(host=link.name)
        return Listing(link.name, error=message, hint=_("Name a directory below."))
    return _named(link.name, found, is_asked=bool(paths))


async def _collected(link: HostLink, key: AttemptKey, paths: Sequence[str]) -> _Collected:
    """Ask page after page. Raises HostError."""
    found = _Collected()
    more = True
    while more:
        request = FilesRequest(key, list(paths), len(found.rows) + found.refused, LOOK_S)
        more = _take(found, await link.call("list_files", request, FilesReply))
    return found


def arranged(listings: Sequence[Listing], directories: Mapping[str, str], *, are_apart: bool) -> list[Listing]:
    """Return the listings with a directory for each host, where they are apart; what hosts share is one's alone.

    Args:
        listings: of each host.
        directories: what that of each host is called.
        are_apart: whether the attempt has several hosts: also where only one of them answers or has files, so that
            another fetch finds what this one has brought.
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
    if not are_apart:
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
    if len(reply.places) > MOST_PLACES or (found.places and list(reply.places) != found.places):
        # Nonsense, or a directory that came or went between two answers: their numbers would lead elsewhere.
        found.is_whole = False
        return False
    found.places = list(reply.places)
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


def _named(node: str, found: _Collected, *, is_asked: bool) -> Listing:
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
        if place.detail and is_asked
    }
    notes = tuple(_notes(node, found, refused))
    return Listing(node, tuple(files.values()), notes, missing, is_whole=found.is_whole)


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
