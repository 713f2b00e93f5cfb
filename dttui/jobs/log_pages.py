"""Any lines of a log by their numbers, without holding it: of one file of any length, or of several as they come."""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import BinaryIO, Protocol

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.jobs.log_following import shown_line
from dttui.jobs.log_masks import hidden
from dttui.jobs.log_times import line_time, start_since
from dttui.jobs.sparse_files import read_kept
from dttui.redaction import NO_VALUES, Redaction

READ_BYTES = 1 << 20
"""Of a file at once; a line that is longer counts as several."""
MOST_AT_ONCE = 8 << 20
TAIL_BYTES = 256 * 1024
"""Of a file, what is looked at first: its end."""
EACH = 256
"""Lines from one whose place is known to the next."""
LOOKED_AT = 16 * EACH
"""Lines that are looked at together for whether any of them may be wanted."""
_NEWLINE = re.compile(rb"\n")


class LineMatcher(Protocol):
    """What lines are looked for."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """Of a line as it is shown."""

    def may_be_in(self, block: bytes) -> bool:
        """Whether a block of lines may have one of them: a quick look, which finds too many."""


class RecentLines:
    """The newest lines of several logs, in the order in which they came."""

    generation = 0

    def __init__(self, most: int) -> None:
        self._lines: deque[tuple[int, str]] = deque(maxlen=most)
        self.end = 0

    @property
    def first(self) -> int:
        """Number of the first line that is kept."""
        return self.end - len(self._lines)

    def add(self, lines: Iterable[str]) -> None:
        """Take further lines; the oldest go where there is no room."""
        for line in lines:
            self._lines.append((self.end, line))
            self.end += 1

    def lines(self, start: int, count: int) -> list[str]:
        """Return lines."""
        return [line for _number, line in self._numbered(start, count)]

    def find(self, wanted: LineMatcher, start: int, most: int) -> list[int]:
        """Return which of so many lines have what is wanted."""
        return [number for number, line in self._numbered(start, most) if wanted.pattern.search(line)]

    def at_time(self, moment: float) -> int | None:
        """Return the first line that carries a Unix time from then on."""
        times = ((number, line_time(line.encode())) for number, line in list(self._lines))
        return next((number for number, at in times if at is not None and at >= moment), None)

    def _numbered(self, start: int, count: int) -> list[tuple[int, str]]:
        # In one step, as lines may be added by another thread meanwhile; those before the first are gone.
        at = max(0, start - self.first)
        found = list(islice(self._lines, at, at + count))
        return [item for item in found if start <= item[0] < start + count]


class _Index:
    """Where lines begin in a part of a file, of each `EACH`th."""

    def __init__(self, offset: int) -> None:
        self.numbers: list[int] = []
        self.offsets: list[int] = []
        self.end = 0
        """Number of the next line."""
        self.read_to = offset
        """Up to where lines are counted."""

    def count(self, stream: BinaryIO, until: int) -> None:
        """Count whole lines up to an offset."""
        while self.read_to < until:
            start, data = _whole_lines(stream, self.read_to, until)
            if not data:
                return
            begins = [0, *(match.end() for match in _NEWLINE.finditer(data))]
            if begins[-1] == len(data):
                begins.pop()
            self.numbers += range(self.end, self.end + len(begins), EACH)
            self.offsets += [start + at for at in begins[::EACH]]
            self.end += len(begins)
            self.read_to = start + len(data)


class LogPages:
    """The lines of one file. Of a long one only the end is known at first, until what comes before is counted.

    Args:
        path: of the file, which may grow, be replaced, or not be there yet.
        redaction: leaves out what is secret.
    """

    def __init__(self, path: Path, redaction: Redaction = NO_VALUES) -> None:
        self._path = path
        self._redaction = redaction
        self._inode: int | None = None
        self._begin = 0
        """Offset of the first line that is known."""
        self._index = _Index(0)
        self._is_stale = False
        """Whether something was dropped from the middle since it was counted."""
        self.generation = 0

    first = 0

    @property
    def end(self) -> int:
        """Number behind that of the last line."""
        return self._index.end

    @property
    def is_counted(self) -> bool:
        """Whether all lines are known, those before the end that was looked at first too."""
        return self._begin == 0

    def grow(self) -> bool:
        """Take in what was written since, at most some MiB; return whether there are other lines than before."""
        try:
            with self._path.open("rb", buffering=0) as stream:
                info, before = os.fstat(stream.fileno()), (self.generation, self.end)
                if self._is_stale or info.st_ino != self._inode or info.st_size < self._index.read_to:
                    self.generation += self._inode is not None
                    self._is_stale, self._inode = False, info.st_ino
                    self._begin = _line_after(stream, max(0, info.st_size - TAIL_BYTES))
                    self._index = _Index(self._begin)
                self._index.count(stream, min(info.st_size, self._index.read_to + MOST_AT_ONCE))
                return before != (self.generation, self.end)
        except FileNotFoundError:
            return False

    def count_earlier(self) -> Callable[[], int]:
        """Count the lines before the first that is known: a second for a GB, so for a thread of its own.

        Returns:
            What has them known as well, and returns how many they are: by so much the numbers of the others rise.
        """
        inode, begin, index = self._inode, self._begin, _Index(0)
        try:
            with self._path.open("rb", buffering=0) as stream:
                if os.fstat(stream.fileno()).st_ino == inode:
                    index.count(stream, begin)
        except FileNotFoundError:
            pass

        def take() -> int:
            if (self._inode, self._begin) != (inode, begin):
                return 0
            known, self._index, self._begin = self._index, index, 0
            count = index.end
            index.numbers += [number + count for number in known.numbers]
            index.offsets += known.offsets
            index.end, index.read_to = count + known.end, known.read_to
            return count

        return take

    def lines(self, start: int, count: int) -> list[str]:
        """Return lines."""
        return [shown_line(line) for line in self._raw(start, count)]

    def find(self, wanted: LineMatcher, start: int, most: int) -> list[int]:
        """Return which of so many lines have what is wanted."""
        found = []
        until = min(start + most, self.end)
        for first in range(max(0, start), until, LOOKED_AT):
            raw = self._raw(first, min(LOOKED_AT, until - first))
            if wanted.may_be_in(b"\n".join(raw)):
                found += [number for number, line in enumerate(raw, first) if wanted.pattern.search(shown_line(line))]
        return found

    def at_time(self, moment: float) -> int | None:
        """Return the first line that carries a Unix time from then on."""
        offsets = self._index.offsets
        try:
            with self._path.open("rb", buffering=0) as stream:
                offset, is_untimed = start_since(stream, moment)
                if is_untimed or offset >= self._index.read_to or not offsets:
                    return None
                at = max(0, bisect_right(offsets, offset) - 1)
                number, position = self._index.numbers[at], offsets[at]
                while position < offset:
                    begin, data = _whole_lines(stream, position, offset)
                    if not data:
                        break
                    number += data.count(b"\n")
                    position = begin + len(data)
                return number
        except FileNotFoundError:
            return None

    def _raw(self, start: int, count: int) -> list[bytes]:
        numbers, offsets = self._index.numbers, self._index.offsets
        start, end = max(start, 0), min(start + count, self.end)
        if end <= start:
            return []
        at, behind = bisect_right(numbers, start) - 1, bisect_left(numbers, end)
        offset, until = offsets[at], offsets[behind] if behind < len(offsets) else self._index.read_to
        found: list[bytes] = []
        try:
            with self._path.open("rb", buffering=0) as stream:
                while offset < until:
                    begin, data = _whole_lines(stream, offset, until)
                    if not data or (begin > offset and not found):
                        self._is_stale = True
                        return []
                    shown = hidden(self._path, begin, data, self._redaction)
                    found += shown.removesuffix(b"\n").split(b"\n")
                    offset = begin + len(data)
        except FileNotFoundError:
            return []
        return found[start - numbers[at] :][: end - start]


def save_lines(store: LogPages | RecentLines, path: str, numbers: Sequence[int] | None = None) -> int:
    """Write lines as they are shown into a new file; return how many. Nobody else may read it.

    Args:
        store: the lines.
        path: of the file; `~` is somebody's home.
        numbers: of the lines, in order; without them, all.

    Raises:
        UsageError: there is something of that name, or it cannot be written.
    """
    chosen = range(store.first, store.end) if numbers is None else numbers
    count = 0
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(os.path.expanduser(path), flags, 0o600)
        with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
            for _block, group in groupby(chosen, lambda number: number // EACH):
                part = list(group)
                first = max(part[0], store.first)
                there = store.lines(first, part[-1] - first + 1)
                lines = [there[number - first] for number in part if 0 <= number - first < len(there)]
                file.writelines(f"{line}\n" for line in lines)
                count += len(lines)
    except FileExistsError as error:
        raise UsageError(_("{path} is there already").format(path=path), _("Choose another name.")) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(_("{path} cannot be written: {reason}").format(path=path, reason=reason)) from error
    return count


def _whole_lines(stream: BinaryIO, offset: int, until: int) -> tuple[int, bytes]:
    """Return the lines from an offset on, up to another one or the next hole, and where they begin.

    One that is not whole is left out, unless it is too long to wait for its end.
    """
    wanted = min(READ_BYTES, until - offset)
    start, data = read_kept(stream.fileno(), offset, wanted)
    data = data[: max(0, until - start)]
    if len(data) < wanted and start + len(data) < until:
        return start, data  # What is dropped behind it ends its last line.
    whole = data.rfind(b"\n") + 1
    return start, data[:whole] if whole or len(data) < READ_BYTES else data


def _line_after(stream: BinaryIO, offset: int) -> int:
    """Return where the first line begins that begins behind an offset; that itself at the beginning of the file."""
    if not offset:
        return 0
    start, data = read_kept(stream.fileno(), offset, READ_BYTES)
    return start + (data.find(b"\n") + 1 or len(data))
