"""Reading the streams of an attempt from byte offsets: logs of its processes, metrics, and what is gone."""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from dtagent.locations import AttemptFiles
from dtagent.protocol.jobs import PROCESS_NAME
from dtagent.protocol.logs import FollowRequest, LogChunk
from dtagent.protocol.rpc import MAX_CHUNK_BYTES
from dtagent.system import untrusted_files

METRICS = "metrics"
TRAINER = "trainer"
_STREAM = re.compile(rf"{PROCESS_NAME}\.(out|err)")


Sizes = dict[str, tuple[int, int]]
"""Stream → length in bytes and inode number of its file."""


@dataclass(frozen=True)
class _Stream:
    """A stream as it is on disk, and where the client is in it."""

    size: int
    inode: int
    offset: int
    """Where to read on."""
    is_new_file: bool
    """Whether the client's own offset was of another file, or of one that was longer."""
    is_unknown: bool
    """Whether the client has not heard of it: it is told even while it is empty."""

    @property
    def has_more(self) -> bool:
        return self.size > self.offset or self.is_new_file or self.is_unknown


def sizes(files: AttemptFiles) -> Sizes:
    """Return the streams there are, as they are now."""
    found = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(files.logs) as entries:
        for entry in entries:
            if _STREAM.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    info = entry.stat(follow_symlinks=False)
                    found[entry.name] = (info.st_size, info.st_ino)
    for name, (inode, before) in _rescued(files).items():
        if found.get(name, (0, 0))[1] == inode:
            found[name] = (found[name][0], before)  # It goes on where the one did that was removed.
    for name in (METRICS, TRAINER):
        with contextlib.suppress(FileNotFoundError):
            info = os.lstat(_path(files, name))
            if stat.S_ISREG(info.st_mode):
                found[name] = (info.st_size, info.st_ino)
    return found


def _rescued(files: AttemptFiles) -> dict[str, tuple[int, int]]:
    """Return log → inode of the file that took the place of a removed one, and of that one: most often none."""
    try:
        told = untrusted_files.read_object(files.rescued, untrusted_files.RECORD_BYTES)
        return {name: (int(inode), int(before)) for name, (inode, before) in told.items()}
    except (OSError, ValueError, TypeError):
        return {}


def has_more(found: Sizes, request: FollowRequest) -> bool:
    """Whether a stream is longer than what the client has of it, or new to it."""
    return any(stream.has_more for stream in _streams(found, request).values())


def is_a_little(found: Sizes, request: FollowRequest) -> bool:
    """Whether all there is for the client now would not fill half of what it asks for."""
    waiting = sum(stream.size - stream.offset for stream in _streams(found, request).values() if stream.has_more)
    return waiting < min(request.max_bytes, MAX_CHUNK_BYTES) // 2


def read(files: AttemptFiles, request: FollowRequest) -> tuple[list[LogChunk], bool]:
    """Return the next bytes of each stream that has some, and whether there are still more.

    The room is shared out evenly, so that a flood on one rank does not hide another.
    """
    waiting = {name: stream for name, stream in _streams(sizes(files), request).items() if stream.has_more}
    room = max(1, min(request.max_bytes, MAX_CHUNK_BYTES))
    chunks = []
    more = False
    for index, (name, stream) in enumerate(sorted(waiting.items(), key=lambda item: item[1].size - item[1].offset)):
        share = room // (len(waiting) - index)
        try:
            offset, data = _read_at(_path(files, name), stream, share, knows_gaps=request.inodes is not None)
        except FileNotFoundError:  # The script removed it meanwhile.
            continue
        room -= len(data)
        more = more or offset + len(data) < stream.size
        chunks.append(
            LogChunk(
                name,
                offset,
                base64.b64encode(data).decode("ascii"),
                gap_bytes=offset - stream.offset,
                inode=stream.inode,
                is_new_file=stream.is_new_file,
            )
        )
    return chunks, more


def _path(files: AttemptFiles, stream: str) -> Path:
    return {METRICS: files.metrics, TRAINER: files.trainer}.get(stream) or files.logs / stream


def _streams(found: Sizes, request: FollowRequest) -> dict[str, _Stream]:
    streams = {}
    for name, (size, inode) in found.items():
        if name != TRAINER or request.wants_trainer:
            offset = request.offsets.get(name, 0)
            had = (request.inodes or {}).get(name)
            is_new_file = had is not None and (had != inode or size < offset)
            is_unknown = name not in request.offsets
            streams[name] = _Stream(size, inode, 0 if is_new_file else offset, is_new_file, is_unknown)
    return streams


def _read_at(path: Path, stream: _Stream, most: int, *, knows_gaps: bool) -> tuple[int, bytes]:
    """Return the first offset from where the client is on whose bytes are kept, and bytes from there."""
    descriptor = untrusted_files.descriptor(path)
    try:
        start = stream.offset
        while True:
            if knows_gaps:
                start = min(_seek(descriptor, start, os.SEEK_DATA, stream.size), stream.size)
            data = os.pread(descriptor, min(most, max(0, stream.size - start)), start)
            if not data or not knows_gaps:
                return start, data
            # What a hole is punched into while it is read comes as zeros: only what is still data afterwards counts.
            kept = _seek(descriptor, start, os.SEEK_HOLE, stream.size) - start
            if kept > 0:
                return start, data[:kept]
    finally:
        os.close(descriptor)


def _seek(descriptor: int, start: int, whence: int, size: int) -> int:
    try:
        return os.lseek(descriptor, start, whence)
    except OSError as error:
        # ENXIO: nothing but a hole follows. Else the file system knows no holes, and so has none.
        return max(start, size) if error.errno == errno.ENXIO or whence == os.SEEK_HOLE else start
