"""Takes the copy of one checkpoint: written aside, each file compared by its hash, named last."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import queue
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from dtagent.locations import make_private
from dtagent.protocol import sentences
from dtagent.protocol.replication import TakeRequest
from dtagent.replication import kept
from dtagent.replication.manifest import CopiedFile, CopyError, decoded
from dtagent.replication.peer_connection import PeerLink, PeerLinkError, admit
from dtagent.system.units import MIB

AWAIT_S = 30.0
"""How long the other host has to come."""
MOST_STRANGERS = 8
"""Who has not proven himself, at once."""
SPARE_BYTES = 1024 * MIB
"""What a copy leaves free of a large disk; of a small one, a twentieth."""
_READ_BYTES = MIB


def take(request: TakeRequest, listener: socket.socket) -> None:
    """Let the host in that knows the key, take what it sends, and answer it with how that went."""
    with closing(listener):
        link = _admitted(listener, bytes.fromhex(request.key))
    if link is None:
        return
    try:
        try:
            link.say(path=str(take_from(request, link)))
        except CopyError as error:
            link.say(refusal=str(error.why), notice=error.why.notice)
        except OSError as error:
            said = sentences.CANNOT_WRITE(
                path=str(error.filename or request.store), reason=error.strerror or str(error)
            )
            link.say(refusal=str(said), notice=said.notice)
    except PeerLinkError:
        return  # What has come stays, and the next try goes on there.
    finally:
        link.close()


def _admitted(listener: socket.socket, key: bytes) -> PeerLink | None:
    """Return the connection of who knows the key; `None` where nobody came that does."""
    places, found = threading.Semaphore(MOST_STRANGERS), queue.SimpleQueue[PeerLink]()
    deadline = time.monotonic() + AWAIT_S

    def prove(stream: socket.socket) -> None:
        try:
            found.put(admit(stream, key))
        except PeerLinkError:
            stream.close()
        finally:
            places.release()

    listener.settimeout(0.05)
    while time.monotonic() < deadline:
        with contextlib.suppress(queue.Empty):
            return found.get_nowait()
        if not places.acquire(timeout=0.05):
            continue
        try:
            stream, _place = listener.accept()
        except OSError:
            places.release()
            continue
        threading.Thread(target=prove, args=(stream,), daemon=True).start()
    return None


def take_from(request: TakeRequest, link: PeerLink) -> Path:
    """Take the checkpoint that the other side has; return where it is. Raises PeerLinkError and CopyError."""
    words = link.hear().get("manifest")
    manifest = decoded(words if isinstance(words, dict) else {})
    store = Path(request.store)
    place = kept.place_of(store, manifest.node_rank)
    make_private(place)
    with _alone(place):
        if (path := kept.find(place, manifest)) is not None:
            return path
        own = kept.incoming(place, manifest)
        copy = own / manifest.name
        have = {file.path: _have(copy, file) for file in manifest.files}
        _check_room(place, manifest.size_bytes - sum(have.values()))
        link.say(have={path: size for path, size in have.items() if size})
        for number, file in enumerate(manifest.files):
            _take_file(link, copy, number, file)
        if link.hear().get("is_whole") is not True:
            raise PeerLinkError("the end was expected")
        path = kept.seal(own, manifest)
        kept.prune([store, *map(Path, request.older)], manifest.node_rank, request.keep, path.parent)
        return path


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Keep a second copy of the same node's from being written at once."""
    number = os.open(place / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CopyError(sentences.COPY_UNDER_WAY()) from None
        yield
    finally:
        os.close(number)


def _have(copy: Path, file: CopiedFile) -> int:
    """Return how much of a file has come in an earlier try."""
    try:
        size = os.lstat(copy / file.path if file.path else copy).st_size
    except OSError:
        return 0
    return size if size <= file.size else 0


def _check_room(place: Path, wanted: int) -> None:
    use = shutil.disk_usage(place)
    free = use.free - min(SPARE_BYTES, use.total // 20)
    if wanted > free:
        raise CopyError(sentences.COPY_WITHOUT_ROOM(path=str(place), wanted=wanted >> 20, free=max(0, use.free) >> 20))


def _take_file(link: PeerLink, copy: Path, number: int, file: CopiedFile) -> None:
    told = link.hear()
    start = told.get("start")
    if told.get("file") != number or type(start) is not int or not 0 <= start <= file.size:
        raise PeerLinkError("another file was expected")
    path = copy / file.path if file.path else copy
    make_private(path.parent)
    with open(path, "r+b", opener=_private) as stream:
        digest, have = _digest(stream, start)
        while have < file.size:
            data = link.receive()
            if not isinstance(data, bytes) or have + len(data) > file.size:
                raise PeerLinkError("other bytes were expected")
            stream.write(data)
            digest.update(data)
            have += len(data)
        stream.flush()
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if link.hear().get("sha256") != digest.hexdigest():
        path.unlink()
        raise CopyError(sentences.COPY_DIFFERS(file=file.path or copy.name))


def _digest(stream: BinaryIO, start: int) -> tuple[hashlib._Hash, int]:
    """Return the hash of what stays of a file, the beginning; what is beyond goes."""
    digest, have = hashlib.sha256(), 0
    stream.truncate(start)
    while data := stream.read(_READ_BYTES):
        digest.update(data)
        have += len(data)
    if have != start:
        raise PeerLinkError("less has come before than was said")
    return digest, have


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o600)
