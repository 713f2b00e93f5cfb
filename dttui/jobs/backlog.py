"""Lines that the login node's disk did not take: kept in memory, in order, and written once there is room."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dttui.files import append_line


@dataclass
class _Kept:
    """The lines of one file, each with whether it is to be on the disk at once."""

    lines: deque[tuple[str, bool]] = field(default_factory=deque)
    size_bytes: int = 0


class Backlog:
    """Appends lines to files; no job ends because of a disk that is full, or has become read-only.

    Args:
        on_change: called where `trouble` begins or ends.
    """

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.trouble: tuple[Path, str] | None = None
        """The file that could not be written, and why; `None` while all is written."""
        self._kept: dict[Path, _Kept] = {}
        self._on_change = on_change

    def append(self, path: Path, line: str, *, durable: bool = False, most_bytes: int | None = None) -> bool:
        """Append a line after all that is kept of its file; return whether it is written.

        Args:
            path: of the file.
            line: without its newline.
            durable: whether it is to be on the disk by the return.
            most_bytes: kept of this file at most; beyond it the oldest lines go.
        """
        kept = self._kept.setdefault(path, _Kept())
        kept.lines.append((line, durable))
        kept.size_bytes += len(line)
        is_written = self._write(path)
        while not is_written and most_bytes is not None and kept.size_bytes > most_bytes:
            kept.size_bytes -= len(kept.lines.popleft()[0])
        return is_written

    def kept(self, path: Path) -> list[str]:
        """Return what is still to be written to a file."""
        return [line for line, _durable in self._kept[path].lines] if path in self._kept else []

    def kept_bytes(self, path: Path) -> int:
        """Return about how much that is."""
        return self._kept[path].size_bytes if path in self._kept else 0

    def flush(self) -> bool:
        """Write what could not be written before; return whether everything is on the disk."""
        return all([self._write(path) for path in list(self._kept)])

    def _write(self, path: Path) -> bool:
        kept = self._kept[path]
        while kept.lines:
            line, durable = kept.lines[0]
            try:
                append_line(path, line, durable=durable)
            except OSError as error:
                self._note(path, error.strerror or str(error))
                return False
            kept.lines.popleft()
            kept.size_bytes -= len(line)
        del self._kept[path]
        if not self._kept and self.trouble is not None:
            self.trouble = None
            self._on_change()
        return True

    def _note(self, path: Path, reason: str) -> None:
        is_new = self.trouble is None
        self.trouble = (path, reason) if self.trouble is None else self.trouble
        if is_new:
            self._on_change()
