"""The end of a job's logs, and what is added to it: the lines a screen shows, clean and with their rank before them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from dttui.jobs.directory import JobDirectory
from dttui.jobs.following import LineReader
from dttui.jobs.log_marks import retold
from dttui.redaction import NO_VALUES, Redaction
from dttui.sanitize import clean

FIRST_BYTES = 256 * 1024
"""How much of a file that is there already is shown at first."""
MAX_LINE = 2000
"""Characters of a line that are shown."""
MAX_FILES = 256
"""Most files that are followed at once."""


class LogWindow:
    """Lines of one stream of a node, or of all its streams together."""

    def __init__(
        self, directory: JobDirectory, attempt: int, node: str, stream: str | None, redaction: Redaction = NO_VALUES
    ) -> None:
        """Look at `stream`, such as `3.out` or `launcher.err`; `None` for all of the node's."""
        self._directory = directory.logs(attempt, node)
        self._redaction = redaction
        self._stream = stream
        self._readers: dict[str, LineReader] = {}

    def poll(self) -> list[str]:
        """Return the lines that came since the last call."""
        lines: list[str] = []
        for name in self._names():
            reader = self._readers.get(name)
            if reader is None:
                path = self._directory / name
                reader = LineReader(path, last_bytes=FIRST_BYTES, redaction=self._redaction)
                self._readers[name] = reader
            prefix = f"{_label(name)} │ " if self._stream is None else ""
            lines.extend(prefix + shown(line) for line in reader.read())
        return lines

    def _names(self) -> list[str]:
        return [self._stream] if self._stream is not None else streams(self._directory)[:MAX_FILES]


def streams(directory: Path) -> list[str]:
    """Return the names of the log files of a node: those of ranks in their order, then the launcher's."""
    names: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        names = [path.name for path in directory.iterdir() if path.suffix in (".out", ".err")]
    return sorted(names, key=_order)


def shown(line: bytes) -> str:
    """Return a line of a log as it may be shown: of a progress bar that was redrawn, the last state."""
    text = line[: 4 * MAX_LINE].decode(errors="replace").rstrip("\r")
    return retold(clean(text.rpartition("\r")[2])[:MAX_LINE])


def _label(name: str) -> str:
    rank, _dot, stream = name.rpartition(".")
    who = f"{rank:>3}" if rank.isdigit() else rank
    return f"{who} {stream}"


def _order(name: str) -> tuple[bool, int, str]:
    rank = name.partition(".")[0]
    return (not rank.isdigit(), int(rank) if rank.isdigit() else 0, name)
