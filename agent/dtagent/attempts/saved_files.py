"""The files of an attempt as they are fetched: listed by place, read in parts, and hashed in parts."""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dtagent.attempts.saved_places import WrittenPlace, places_of, started_at, working_directory, written
from dtagent.attempts.saved_walk import Walk, WalkedFile, as_text
from dtagent.errors import RpcError
from dtagent.locations import AttemptFiles
from dtagent.protocol import sentences
from dtagent.protocol.rpc import MAX_CHUNK_BYTES, ErrorCode
from dtagent.protocol.said import Said
from dtagent.protocol.saved import (
    DIGEST_BYTES,
    MAX_ASKED,
    MAX_FILES,
    MAX_LISTED,
    MAX_LOOK_S,
    DigestReply,
    FilesReply,
    FilesRequest,
    ListedPlace,
    PlaceKind,
    ReadReply,
    ReadRequest,
    is_unsafe,
)
from dtagent.system import untrusted_files
from dtagent.system.units import MIB

MOST_PATH_BYTES = MIB
"""Of paths in one answer."""
MOST_SEPARATORS = 20_000
"""Commas and brackets in paths of one answer, of which its receiver takes so many for parts of it."""
HASHED_BYTES = MIB
"""Read at once for a hash."""


_SEPARATORS = ",[]{}:"


def list_files(files: AttemptFiles, request: FilesRequest) -> FilesReply:
    """Return the files from a number on. Blocks for as long as the file systems do.

    Raises:
        RpcError: INVALID_PARAMS for too many paths, or one that is none.
    """
    walk = Walk(min(max(request.seconds, 0.1), MAX_LOOK_S))
    found: Iterator[tuple[int, WalkedFile]]
    if request.paths:
        asked = _asked(files, request.paths)
        found = ((index, item) for index, (real, told) in enumerate(asked) for item in _all_of(walk, real, told))
        places = [told for _real, told in asked]
    else:
        written_in = places_of(files)
        top = working_directory(files)
        places = [_listed(files, place, top) for place in written_in]
        found = _new_files(walk, files, written_in)
    rows: list[tuple[int, str, int, int, int]] = []
    more = False
    length = separators = 0
    for number, (index, item) in enumerate(found):
        if number >= MAX_FILES:
            walk.is_whole = False
            break
        if number < request.start:
            continue
        length += len(item.path.encode(errors="replace"))
        separators += sum(item.path.count(character) for character in _SEPARATORS)
        if rows and (len(rows) == MAX_LISTED or length > MOST_PATH_BYTES or separators > MOST_SEPARATORS):
            more = True
            break
        rows.append((index, item.path, item.seen.st_size, item.seen.st_mtime_ns, item.seen.st_ino))
    return FilesReply(places, rows, more, walk.is_whole, walk.left_out)


def read(request: ReadRequest) -> ReadReply:
    """Return bytes of a file. Raises RpcError REFUSED where it is none, or cannot be read."""
    with _opened(request.path) as stream:
        data = os.pread(stream.fileno(), min(request.count, MAX_CHUNK_BYTES), request.start)
        info = os.fstat(stream.fileno())
    return ReadReply(base64.b64encode(data).decode("ascii"), info.st_size, info.st_mtime_ns, info.st_ino)


def digest(request: ReadRequest) -> DigestReply:
    """Return the hash of bytes of a file. Raises RpcError REFUSED where it is none, or cannot be read."""
    found = hashlib.sha256()
    offset, end = request.start, request.start + min(request.count, DIGEST_BYTES)
    with _opened(request.path) as stream:
        while offset < end and (data := os.pread(stream.fileno(), min(HASHED_BYTES, end - offset), offset)):
            found.update(data)
            offset += len(data)
        info = os.fstat(stream.fileno())
    count = offset - request.start
    return DigestReply(found.hexdigest(), count, info.st_size, info.st_mtime_ns, info.st_ino)


def _asked(files: AttemptFiles, paths: list[str]) -> list[tuple[str, ListedPlace]]:
    """Return each path that a person asks for as it is named here, and what is told of it."""
    if len(paths) > MAX_ASKED:
        raise RpcError(ErrorCode.INVALID_PARAMS, sentences.TOO_MANY_PATHS(count=len(paths), limit=MAX_ASKED))
    if any("\0" in path or not path for path in paths):
        raise RpcError(ErrorCode.INVALID_PARAMS, sentences.PATH_WITH_ZERO())
    top = working_directory(files)
    found = []
    for path in paths:
        real = os.path.realpath(os.path.join(top, path))
        detail: str = ""
        if not os.path.lexists(real):
            detail = sentences.PATHS_MISSING(paths=as_text(os.path.join(top, path)))
        elif not os.path.isdir(real) and not os.path.isfile(real):
            detail = sentences.NO_FILE_THERE(path=as_text(real))
        elif not os.access(real, os.R_OK):
            detail = Said(os.strerror(errno.EACCES))
        # What is below the working directory keeps its path there; what is elsewhere, its name.
        name = os.path.relpath(real, top) if _is_within(real, top) else os.path.basename(real)
        name = "" if name == "." else name
        if not detail and is_unsafe(name):
            detail = sentences.NO_PLAIN_NAME(path=repr(as_text(real)))
        found.append((real, ListedPlace(as_text(real), as_text(name), PlaceKind.ASKED, detail)))
    return found


def _all_of(walk: Walk, real: str, told: ListedPlace) -> Iterator[WalkedFile]:
    if not told.detail:
        yield from walk.files(real)


def _new_files(walk: Walk, files: AttemptFiles, places: list[WrittenPlace]) -> Iterator[tuple[int, WalkedFile]]:
    since = started_at(files)
    if since is None:
        return
    for index, place in enumerate(places):
        for item in written(walk, files, place, places, since):
            yield index, item


def _listed(files: AttemptFiles, place: WrittenPlace, top: str) -> ListedPlace:
    """Return a place with what it is called: by its path in the attempt's directory or the working directory."""
    directory = os.path.realpath(files.directory)
    if place.path == top:
        name = "work"
    elif _is_within(place.path, directory):
        name = os.path.relpath(place.path, directory)
    elif _is_within(place.path, top):
        name = os.path.join("work", os.path.relpath(place.path, top))
    else:
        name = os.path.basename(place.path)
    return ListedPlace(as_text(place.path), as_text(name), place.kind)


def _is_within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if not os.path.isabs(path) or "\0" in path:
        raise RpcError(ErrorCode.INVALID_PARAMS, sentences.NOT_ABSOLUTE(path=repr(path)))
    try:
        with untrusted_files.opened(Path(path)) as stream:
            yield stream
    except OSError as error:
        said = sentences.FILE_NOT_READ(file=path, error=error.strerror or str(error))
        raise RpcError(ErrorCode.REFUSED, said) from error
