"""Reading the streams of an attempt from byte offsets: rank logs, launcher logs, metrics."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import stat

from dtagent.locations import AttemptFiles
from dtagent.protocol.jobs import LogChunk
from dtagent.protocol.rpc import MAX_CHUNK_BYTES

METRICS = "metrics"
_STREAM = re.compile(r"(launcher|\d{1,7})\.(out|err)")


def sizes(files: AttemptFiles) -> dict[str, int]:
    """Return the length in bytes of every stream there is."""
    found = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(files.logs) as entries:
        found = {entry.name: entry.stat().st_size for entry in entries if _is_log(entry)}
    with contextlib.suppress(FileNotFoundError):
        info = files.metrics.lstat()
        if stat.S_ISREG(info.st_mode):
            found[METRICS] = info.st_size
    return found


def _is_log(entry: os.DirEntry[str]) -> bool:
    return bool(_STREAM.fullmatch(entry.name)) and entry.is_file(follow_symlinks=False)


def has_more(files: AttemptFiles, offsets: dict[str, int]) -> bool:
    """Whether a stream is longer than what the client has of it, or new to it."""
    return any(size > offsets.get(stream, -1) for stream, size in sizes(files).items())


def read(files: AttemptFiles, offsets: dict[str, int], max_bytes: int) -> tuple[list[LogChunk], bool]:
    """Return the next bytes of each stream that has some, and whether there are still more.

    A stream that the client has not heard of is told even while it is empty.
    The room is shared out evenly, so that a flood on one rank does not hide another.
    """
    found = sizes(files)
    waiting = {name: found[name] - offsets.get(name, 0) for name in found if found[name] > offsets.get(name, -1)}
    room = min(max_bytes, MAX_CHUNK_BYTES)
    chunks = []
    for index, (name, count) in enumerate(sorted(waiting.items(), key=lambda item: item[1])):
        share = room // (len(waiting) - index)
        offset = offsets.get(name, 0)
        path = files.metrics if name == METRICS else files.logs / name
        with open(path, "rb") as stream:
            stream.seek(offset)
            data = stream.read(min(count, share))
        room -= len(data)
        chunks.append(LogChunk(name, offset, base64.b64encode(data).decode("ascii")))
    taken = min(max_bytes, MAX_CHUNK_BYTES) - room
    return chunks, sum(waiting.values()) > taken
