"""What ranks print, as it comes: one follower for `logs`, for `apply` and `attach`, and for the screen."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from dttui.i18n import ngettext
from dttui.jobs.directory import JobDirectory
from dttui.jobs.following import GrowingFile, Version, version_of
from dttui.jobs.log_marks import retold
from dttui.jobs.log_times import line_time
from dttui.redaction import NO_VALUES, Redaction
from dttui.rpc.token_bucket import TokenBucket
from dttui.sanitize import clean

LINES_PER_S = 1000
"""That somebody who watches is shown, of all files together; nobody reads faster."""
LINES_AT_ONCE = 10_000
"""After a silence: what a script prints as it starts comes whole."""
LAST_LINES = 100
"""That are shown at the end, however many came before."""
MAX_LINE = 4000
"""Characters of a line that somebody who watches is shown."""


@dataclass(frozen=True)
class LogLines:
    """Lines of one file that came together."""

    node: str
    process: str
    """A rank's number, or the name of another process such as `launcher`."""
    stream: str
    """`out` or `err`."""
    lines: list[bytes]
    """As they were printed, but for what is secret."""
    left_out: int
    """Lines before them that came too fast to be shown."""
    is_untimed: bool
    """Whether lines since a time were wanted, and are all of the file's, as none of them carries one."""

    @property
    def rank(self) -> int | None:
        """Whose lines they are, where a rank's."""
        return int(self.process) if self.process.isdecimal() else None


class LogFollower:
    """Whole new lines of the log files of an attempt.

    Args:
        directory: of the job.
        attempt: the number of the attempt.
        takes: whether the files of a process are wanted, by its name and `out` or `err`.
        last_lines: of the files that are there at the first look, only so many.
        since: of these, only the lines since a time.
        redaction: with `None` the lines are as they were printed.
        allowance: of lines; what comes faster is left out, and counted.
    """

    def __init__(
        self,
        directory: JobDirectory,
        attempt: int,
        *,
        takes: Callable[[str, str], bool] = lambda process, stream: True,
        last_lines: int | None = None,
        since: float | None = None,
        redaction: Redaction | None = NO_VALUES,
        allowance: TokenBucket | None = None,
    ) -> None:
        self.attempt = attempt
        self._directory = directory
        self._takes = takes
        self._last_lines = last_lines
        self._since = since
        self._redaction = redaction
        self._allowance = allowance
        self._readers: dict[Path, GrowingFile] = {}
        self._versions: dict[Path, Version | None] = {}
        """How files were when nothing in them was new."""

    def poll(self, nodes: Iterable[str], *, to_the_end: bool = False) -> list[LogLines]:
        """Return what is new of the nodes' files. With `to_the_end` nothing follows, and a last line may lack its end.

        Of one file about 1 MiB comes at once, so that there may be more where something is returned.
        """
        left = None if self._allowance is None else int(self._allowance.left())
        if left is not None and not to_the_end and left < LINES_PER_S:
            return []  # What waits in the files until it may be shown comes together, behind one count of what may not.
        changed = list(self._changed(nodes, to_the_end=to_the_end))
        left_out = {} if left is None else self._pass_over(changed, max(left, LAST_LINES), to_the_end=to_the_end)
        found = []
        for node, path in changed:
            version = version_of(path)
            reader = self._readers[path]
            lines = reader.read(to_the_end=to_the_end)
            self._versions[path] = None if lines else version
            if lines:
                count = left_out.get(path, 0)
                found.append(LogLines(node, path.stem, path.suffix[1:], lines, count, reader.is_untimed))
                if self._allowance is not None:
                    self._allowance.spend(len(lines))
        self._last_lines = self._since = None
        return found

    def _changed(self, nodes: Iterable[str], *, to_the_end: bool) -> Iterator[tuple[str, Path]]:
        for node in nodes:
            for path in log_files(self._directory.logs(self.attempt, node)):
                if self._takes(path.stem, path.suffix[1:]):
                    if path not in self._readers:
                        self._readers[path] = GrowingFile(
                            path, last_lines=self._last_lines, since=self._since, redaction=self._redaction
                        )
                    seen = self._versions.get(path)
                    if to_the_end or seen is None or seen != version_of(path):
                        yield node, path

    def _pass_over(self, changed: Sequence[tuple[str, Path]], most: int, *, to_the_end: bool) -> dict[Path, int]:
        """Leave the oldest lines out where there are more; what one file does not need of its share, others have."""
        unread = {path: self._readers[path].unread(to_the_end=to_the_end) for _node, path in changed}
        left_out = {}
        for index, path in enumerate(sorted(unread, key=unread.__getitem__)):
            share = max(1, most // (len(unread) - index))
            if unread[path] > share:
                left_out[path] = self._readers[path].pass_over(share, to_the_end=to_the_end)
            most -= min(share, unread[path])
        return left_out


def in_time(found: Sequence[LogLines]) -> list[LogLines]:
    """Return lines of several files in the order of the times that they carry.

    One without a time stays behind the one before it in its file; of files whose lines have none the first comes first.
    """
    timed = []
    for order, part in enumerate(found):
        at = -math.inf
        for number, line in enumerate(part.lines):
            at = max(at, line_time(line) or at)
            timed.append((at, order, line, part.left_out if number == 0 else 0))
    timed.sort(key=itemgetter(0))
    merged: list[LogLines] = []
    for order, group in groupby(timed, key=itemgetter(1)):
        lines = list(group)
        part = found[order]
        left_out = sum(count for *_place, count in lines)
        merged.append(replace(part, lines=[line for _at, _order, line, _count in lines], left_out=left_out))
    return merged


def watching() -> TokenBucket:
    """Return the lines that are for somebody who watches."""
    return TokenBucket(LINES_PER_S, LINES_AT_ONCE)


def whole_line(line: bytes) -> str:
    """Return all of a line, as it may be shown."""
    return retold(clean(line.decode(errors="replace")))


def shown_line(line: bytes) -> str:
    """Return a line for somebody who watches: the last state of a progress bar; cut where it is long."""
    last = line.rstrip(b"\r").rpartition(b"\r")[2]
    text = retold(clean(last[: 4 * MAX_LINE + 4].decode(errors="replace")))
    return text if len(text) <= MAX_LINE else f"{text[: MAX_LINE - 1]}…"


def left_out_text(count: int, job_id: str) -> str:
    """Return what is told of lines that came too fast to be shown."""
    text = ngettext(
        "… {count:,} line left out; `dttui logs {id}` has all",
        "… {count:,} lines left out; `dttui logs {id}` has all",
        count,
    )
    return text.format(count=count, id=job_id)


def log_files(directory: Path) -> list[Path]:
    """Return the log files of a node: those of ranks in their order, then those of what starts or serves them."""
    with contextlib.suppress(FileNotFoundError):
        return sorted((path for path in directory.iterdir() if path.suffix in (".out", ".err")), key=_order)
    return []


def _order(path: Path) -> tuple[bool, int, str]:
    is_rank = path.stem.isdecimal()
    return (not is_rank, int(path.stem) if is_rank else 0, path.name)
