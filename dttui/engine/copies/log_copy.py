"""The copies of one node's logs in the job's directory, and where each of them is in the original on the host."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dtagent.protocol.logs import LogChunk

from dttui.engine.copies.copy_cap import CopyCap
from dttui.files import make_private, write_atomic
from dttui.i18n import _
from dttui.jobs.log_masks import write_masks
from dttui.jobs.sparse_files import missing_notice
from dttui.redaction import Redaction

HELD_BYTES = 1 << 20
"""Of what a copy has no room for, how much of its end is kept until the log ends."""
MOST_EMPTY_MARKS = 100
"""Gaps and new files of one stream in a row, without a byte between them."""
MOST_MARKS_AFTER_END = 500
"""Of one stream once nothing writes to it any more."""
MOST_OFFSET = 1 << 63
"""No file is longer."""


@dataclass(frozen=True)
class Cursor:
    """How far a stream was read."""

    offset: int = 0
    """In the file on the host."""
    inode: int | None = None
    """Which file there."""


@dataclass
class _Held:
    """The end of what a copy had no room for."""

    cursor: Cursor
    """Behind its last byte."""
    data: bytes = b""
    dropped_bytes: int = 0
    """Before it."""


class LogCopy:
    """Writes chunks to the copies. What the host no longer had is told in the copy, in a line of its own.

    Args:
        folder: where the copies are; what is there already is gone on from.
        cap: the bound of all copies of the attempt.
        redaction: finds the values whose places are noted.
    """

    def __init__(self, folder: Path, cap: CopyCap | None = None, redaction: Redaction | None = None) -> None:
        self._folder = folder
        self._path = cache(folder.joinpath)
        """Stream → its copy: to put a path together takes longer than to open it."""
        self._redaction = redaction or Redaction()
        self._cap = cap or CopyCap()
        self._held: dict[str, _Held] = {}
        self._places_path = folder.with_name(f"{folder.name}.places.json")
        self._places = _read_places(self._places_path)
        """Stream → by how much an offset on the host is ahead of the length of the copy, and which file it is of."""
        self._cursors = {}
        self._empty_marks: Counter[str] = Counter()
        self._marks_after_end: Counter[str] = Counter()
        with contextlib.suppress(FileNotFoundError):
            for path in folder.iterdir():
                ahead, inode = self._places.get(path.name, (0, None))
                # Below zero where a crash came between noting a new file and telling of it in the copy.
                self._cursors[path.name] = Cursor(max(0, path.stat().st_size + ahead), inode)
                self._cap.note(path)

    @property
    def offsets(self) -> dict[str, int]:
        """Stream → offset to go on from."""
        return {stream: cursor.offset for stream, cursor in self._cursors.items()}

    @property
    def inodes(self) -> dict[str, int]:
        """Stream → inode, of those that an agent has told."""
        return {stream: cursor.inode for stream, cursor in self._cursors.items() if cursor.inode is not None}

    def place(self, stream: str) -> Cursor:
        """Return how far a stream was read."""
        return self._cursors.get(stream, Cursor())

    def skip(self, stream: str, cursor: Cursor) -> None:
        """Go on from there, without what comes before it."""
        self._cursors[stream] = cursor

    def accepts(self, chunk: LogChunk) -> bool:
        """Whether the chunk goes on where this stream was left."""
        cursor = self._cursors.get(chunk.stream, Cursor())
        expected = 0 if chunk.is_new_file and cursor.inode is not None else cursor.offset
        return chunk.gap_bytes >= 0 and chunk.offset - chunk.gap_bytes == expected and chunk.offset < MOST_OFFSET

    def is_endless(self, chunk: LogChunk, data: bytes, *, is_over: bool) -> bool:
        """Note a chunk; whether all that comes of its stream are gaps and new files, beyond what a host can have."""
        stream = chunk.stream
        is_mark = chunk.gap_bytes > 0 or chunk.is_new_file
        self._empty_marks[stream] = self._empty_marks[stream] + 1 if is_mark and not data else 0
        self._marks_after_end[stream] += is_mark and is_over
        return self._empty_marks[stream] > MOST_EMPTY_MARKS or self._marks_after_end[stream] > MOST_MARKS_AFTER_END

    def advance(self, chunk: LogChunk, data: bytes) -> None:
        """Note that a chunk was taken."""
        self._cursors[chunk.stream] = Cursor(chunk.offset + len(data), chunk.inode)

    def write(self, chunk: LogChunk, data: bytes) -> None:
        """Append a chunk that is accepted to its copy, after a line about what is missing before it.

        Raises:
            OSError: there is no room, say; the copy is as it was.
        """
        if chunk.stream in self._held or not self._cap.takes(self._path(chunk.stream)):
            self._hold(chunk, data)
        else:
            self._append(chunk.stream, self._notice(chunk), data, Cursor(chunk.offset, chunk.inode))
        self.advance(chunk, data)

    def finish(self) -> None:
        """Write the end of each log that a copy had no room for, after a line about what is missing before it.

        Raises:
            OSError: there is no room, say; it may be tried again.
        """
        for stream, held in list(self._held.items()):
            notice = f"{missing_notice(held.dropped_bytes)}\n".encode() if held.dropped_bytes else b""
            start = Cursor(held.cursor.offset - len(held.data), held.cursor.inode)
            self._append(stream, notice, held.data, start)
            del self._held[stream]

    def _hold(self, chunk: LogChunk, data: bytes) -> None:
        """Keep a chunk in memory, where its copy is full and nothing can be dropped from the middle of it."""
        held = self._held.get(chunk.stream)
        if held is None:
            text = _("… this file system cannot drop the middle of a file: from here on only the end is kept …")
            self._append(chunk.stream, f"{text}\n".encode(), b"", self.place(chunk.stream))
            held = self._held[chunk.stream] = _Held(self.place(chunk.stream))
        if chunk.gap_bytes or chunk.is_new_file:
            held.dropped_bytes += len(held.data) + chunk.gap_bytes
            held.data = b""
        whole = held.data + data
        held.data = whole[-HELD_BYTES:]
        held.dropped_bytes += len(whole) - len(held.data)
        held.cursor = Cursor(chunk.offset + len(data), chunk.inode)

    def break_off(self, stream: str) -> None:
        """Say at the end of a copy that the rest of the log was not fetched; whoever fetches it later goes on here.

        Raises:
            OSError: there is no room, say; the copy is as it was.
        """
        notice = _("… the rest of this log was not fetched: the stop was forced …")
        self._append(stream, f"{notice}\n".encode(), b"", self.place(stream))

    def mark_the_end(self) -> None:
        """Say at the end of each copy, once, that there may have been more of it, which nobody has any more.

        Raises:
            OSError: there is no room, say; the copy is as it was.
        """
        text = _("… if there was more of this log, the host has not kept it …")
        notice = f"{text}\n".encode()
        for stream in [name for name in self._cursors if self._path(name).exists()]:
            if not _ends_with(self._path(stream), notice):
                self._append(stream, notice, b"", self.place(stream))

    def _append(self, stream: str, notice: bytes, data: bytes, cursor: Cursor) -> None:
        """Append lines of our own, and the bytes that are at `cursor` on the host."""
        make_private(self._folder)
        with self._path(stream).open("a+b", buffering=0) as copy:
            size = copy.seek(0, os.SEEK_END)
            if notice and size:
                copy.seek(-1, os.SEEK_END)
                notice = notice if copy.read(1) == b"\n" else b"\n" + notice
            place = (cursor.offset - size - len(notice), cursor.inode)
            if self._places.get(stream, (0, None)) != place:
                # After what the copy holds and before what follows: a crash, even of the machine, then loses no byte.
                os.fdatasync(copy.fileno())
                self._places[stream] = place
                write_atomic(self._places_path, json.dumps(self._places))
            # What came before may hold the beginning of a value, unless something of ours comes between.
            before = 0 if notice else min(size, self._redaction.reach_bytes)
            searched = os.pread(copy.fileno(), before, size - before) + data
            first = size + len(notice) - before
            found = self._redaction.values_in(searched)
            write_masks(self._path(stream), [(first + start, first + end) for start, end in found])
            if copy.write(notice + data) < len(notice + data):
                copy.truncate(size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), copy.name)
        self._cap.note(self._path(stream))

    def _notice(self, chunk: LogChunk) -> bytes:
        lines = []
        if chunk.is_new_file:
            lines.append(_("… the script replaced this file; it goes on from the beginning of the new one …"))
        if chunk.gap_bytes:
            lines.append(_("… {count:,} bytes of this log were not kept on the host …").format(count=chunk.gap_bytes))
        return "".join(f"{line}\n" for line in lines).encode()


def _ends_with(path: Path, line: bytes) -> bool:
    with path.open("rb") as copy:
        copy.seek(max(0, copy.seek(0, os.SEEK_END) - len(line)))
        return copy.read() == line


def _read_places(path: Path) -> dict[str, tuple[int, int | None]]:
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
        return {stream: (int(ahead), inode) for stream, (ahead, inode) in json.loads(path.read_text()).items()}
    return {}
