"""Sends one checkpoint to a host that keeps a copy of it."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dtagent.protocol import sentences
from dtagent.protocol.replication import SendReply, SendRequest
from dtagent.protocol.said import Said, recalled
from dtagent.replication.manifest import CopiedFile, CopyError, Manifest, manifest_of
from dtagent.replication.peer_connection import SILENCE_LIMIT_S, PeerLink, PeerLinkError, reach
from dtagent.system.units import MIB
from dtagent.system.untrusted_files import opened

CHUNK_BYTES = MIB
LEAST_RATE = 64 * 1024


class RateLimit:
    """Keeps what is sent within a rate, measured from the start on.

    Args:
        bytes_per_s: most; 0 for any.
    """

    def __init__(self, bytes_per_s: int) -> None:
        self._rate = max(bytes_per_s, LEAST_RATE) if bytes_per_s > 0 else 0
        self._due_at = time.monotonic()

    def spend(self, count: int) -> None:
        """Wait until so many more bytes are within it; time in which nothing was sent is not made up for."""
        if self._rate:
            now = time.monotonic()
            self._due_at = max(self._due_at, now) + count / self._rate
            time.sleep(self._due_at - now)


def send(request: SendRequest) -> SendReply:
    """Send it; what goes wrong is in the reply."""
    began = time.monotonic()
    try:
        manifest = manifest_of(
            Path(request.path),
            form=request.form,
            attempt=request.attempt,
            node_rank=request.node_rank,
            step=request.step,
            time=request.time,
        )
        found = (request.size_bytes, request.changed_ns)
        if request.changed_ns is not None and found != (manifest.size_bytes, manifest.changed_ns):
            raise CopyError(sentences.COPY_CHANGED(path=request.path))
        try:
            stream = socket.create_connection((request.address.strip("[]"), request.port), SILENCE_LIMIT_S)
        except OSError as error:
            place = f"{request.address}:{request.port}"
            raise CopyError(sentences.COPY_NO_WAY(place=place, error=error.strerror or str(error))) from error
        with closing(stream):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = reach(stream, bytes.fromhex(request.key))
            path, sent = exchange(link, manifest, RateLimit(request.bytes_per_s).spend)
        return SendReply(path, manifest.size_bytes, sent, time.monotonic() - began)
    except CopyError as error:
        return SendReply(detail=error.why)
    except PeerLinkError as error:
        return SendReply(detail=sentences.COPY_CUT(error=str(error)))
    except OSError as error:
        path = str(error.filename or request.path)
        return SendReply(detail=sentences.FILE_NOT_READ(file=path, error=error.strerror or str(error)))


def exchange(link: PeerLink, manifest: Manifest, pace: Callable[[int], None]) -> tuple[str, int]:
    """Return the copy's path there, and how many bytes were sent."""
    link.say(manifest=asdict(manifest))
    reply = _agreed(link.hear())
    if isinstance(path := reply.get("path"), str):
        return path, 0
    have = reply.get("have")
    sent = 0
    for number, file in enumerate(manifest.files):
        start = have.get(file.path, 0) if isinstance(have, dict) else 0
        if type(start) is not int or not 0 <= start <= file.size:
            start = 0
        sent += file.size - start
        link.say(file=number, start=start)
        link.say(sha256=_send_file(link, _within(manifest, file), file, start, pace))
    _check_unchanged(manifest)
    link.say(is_whole=True)
    path = _agreed(link.hear()).get("path")
    if not isinstance(path, str):
        raise PeerLinkError("no path came")
    return path, sent


def _send_file(link: PeerLink, path: Path, file: CopiedFile, start: int, pace: Callable[[int], None]) -> str:
    digest, left = hashlib.sha256(), file.size
    with opened(Path(os.path.realpath(path))) as stream:
        while left:
            count = min(CHUNK_BYTES, left)
            if left > file.size - start:  # What the other side has got already is read for its hash alone.
                count = min(count, left - (file.size - start))
            data = stream.read(count)
            if len(data) < count:
                raise CopyError(sentences.COPY_CHANGED(path=str(path)))
            digest.update(data)
            if left <= file.size - start:
                pace(count)
                link.send(data)
            left -= count
        # Nobody reads it again here, and what training reads is to stay in memory.
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return digest.hexdigest()


def _check_unchanged(manifest: Manifest) -> None:
    for file in manifest.files:
        path = _within(manifest, file)
        seen = os.stat(path)
        if (seen.st_size, seen.st_mtime_ns) != (file.size, file.time_ns):
            raise CopyError(sentences.COPY_CHANGED(path=str(path)))


def _within(manifest: Manifest, file: CopiedFile) -> Path:
    return Path(manifest.source) / file.path if file.path else Path(manifest.source)


def _agreed(reply: dict[str, Any]) -> dict[str, Any]:
    """Return what the other side has answered. Raises CopyError where that is why it takes no copy."""
    why = reply.get("refusal")
    if isinstance(why, str):
        said: Said = recalled(why[:1000], reply.get("notice"))
        raise CopyError(said)
    return reply
