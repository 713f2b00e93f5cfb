"""Records what a writer does to the files of a directory, by inotify; standard library only, so any interpreter can.

Directories made by Python, in whatever process that has called `watch_new_directories`, are watched before anything can
be put into them, so that no operation is missed and their order is the real one. A rank in another process waits for
that by `wait_to_be_watched`, and by `mark` for what it tells to be noted: beside the directory there is a file then.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_MODIFY, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x2, 0x8, 0x40, 0x80
_CREATE, _DELETE, _IS_DIRECTORY, _OVERFLOW = 0x100, 0x200, 0x40000000, 0x4000
_HEADER = struct.Struct("iIII")
MARK = "MARK "
"""Begins a line that a rank tells on stdout."""
_LOOK_S = 0.002
_PATIENCE_S = 60.0
_libc = ctypes.CDLL(None, use_errno=True)


class Operation(NamedTuple):
    """One thing done to a directory."""

    kind: str
    """`mkdir`, `create`, `modify`, `close`, `rename`, `delete`, `rmdir`; and `mark`, where the writer told so."""
    path: str
    """Relative to the directory; what was told."""
    to: str = ""
    """The new path of what is renamed."""


class Recorder:
    """Follows one directory, and what is made in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.operations: list[Operation] = []
        self._handle = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._paths: dict[int, str] = {}
        self._from: dict[int, str] = {}
        self._modified: set[str] = set()
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._noted = _notes_of(root)
        self._noted.mkdir(exist_ok=True)
        for parent, _, _ in os.walk(root):
            self.add(parent)

    def add(self, directory: str | Path) -> None:
        """Watch a directory, if it is one below the root."""
        path = os.path.relpath(directory, self.root)
        mask = _MODIFY | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
        number = _libc.inotify_add_watch(self._handle, os.fsencode(os.fspath(directory)), mask)
        if number >= 0:
            with self._lock:
                self._paths.setdefault(number, path)
            (self._noted / _note(path)).touch()

    def mark(self, text: str) -> None:
        """Note between the operations what their writer tells."""
        self.read()
        self.operations.append(Operation("mark", text))
        (self._noted / _note(f"mark {text}")).touch()

    def read(self) -> None:
        """Take what has happened up to now."""
        with self._reading:
            self._read()

    def _read(self) -> None:
        while select.select([self._handle], [], [], 0)[0]:
            data = os.read(self._handle, 1 << 20)
            place = 0
            while place < len(data):
                number, mask, cookie, length = _HEADER.unpack_from(data, place)
                place += _HEADER.size
                name = os.fsdecode(data[place : place + length].rstrip(b"\0"))
                place += length
                assert not mask & _OVERFLOW, "the kernel has dropped events"
                with self._lock:
                    parent = self._paths.get(number)
                if parent is not None and name:
                    self._take(os.path.normpath(os.path.join(parent, name)), mask, cookie)

    def close(self) -> None:
        os.close(self._handle)

    def _take(self, path: str, mask: int, cookie: int) -> None:
        is_directory = bool(mask & _IS_DIRECTORY)
        told = self.operations
        if mask & _CREATE and is_directory:
            told.append(Operation("mkdir", path))
            self.add(self.root / path)
        elif mask & _CREATE:
            told.append(Operation("create", path))
        elif mask & _MODIFY and path not in self._modified:
            self._modified.add(path)
            told.append(Operation("modify", path))
        elif mask & _CLOSE_WRITE:
            self._modified.discard(path)
            told.append(Operation("close", path))
        elif mask & _DELETE:
            told.append(Operation("rmdir" if is_directory else "delete", path))
            (self._noted / _note(path)).unlink(missing_ok=True)
        elif mask & _MOVED_FROM:
            self._from[cookie] = path
        elif mask & _MOVED_TO:
            before = self._from.pop(cookie, "")  # From elsewhere: as if it were made at once.
            told += (
                [Operation("rename", before, path)] if before else [Operation("create", path), Operation("close", path)]
            )
            if is_directory and before:
                with self._lock:
                    self._paths = {
                        number: path + known[len(before) :] if (known + "/").startswith(before + "/") else known
                        for number, known in self._paths.items()
                    }


def watch_new_directories(tell: Callable[[str], None]) -> None:
    """Have this process wait, with each directory that it makes, until that is watched."""
    make = os.mkdir

    def made(path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        try:
            make(path, mode, dir_fd=dir_fd)
        finally:  # Of one that is there already, another rank may be about to be told that it is watched.
            tell(os.fspath(path))

    os.mkdir = made  # type: ignore[assignment]  # the same call with a wait behind it


def wait_to_be_watched(root: Path) -> None:
    """For a rank: whoever records does so in another process, which needs a while for each new directory."""
    watch_new_directories(lambda path: _wait_for_note(root, path) if _is_below(path, root) else None)


def mark(root: Path, text: str) -> None:
    """For a rank: tell on stdout what is to be noted between the operations, and wait until it is."""
    print(f"{MARK}{text}", flush=True)
    _wait((_notes_of(root) / _note(f"mark {text}")).exists, text)


def _wait_for_note(root: Path, path: str) -> None:
    note = _notes_of(root) / _note(os.path.relpath(os.path.realpath(path), os.path.realpath(root)))
    _wait(lambda: note.exists() or not os.path.isdir(path), path)  # It may not have been made, or be gone again.


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"nobody records {what}"
        time.sleep(_LOOK_S)


def _notes_of(root: Path) -> Path:
    """Return where it is noted what is watched and what was told: beside what is recorded."""
    return root.with_name(f"{root.name}.noted")


def _note(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2f")


@contextmanager
def recording(root: Path) -> Iterator[Recorder]:
    """Record what is done below a directory until the block ends."""
    watch = Recorder(root)
    done = threading.Event()

    def follow() -> None:
        while not done.wait(0.001):
            watch.read()

    make = os.mkdir
    watch_new_directories(lambda path: watch.add(path) if _is_below(path, root) else None)
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        os.mkdir = make
        done.set()
        thread.join()
        watch.read()
        watch.close()


def _is_below(path: str, root: Path) -> bool:
    return os.path.realpath(path).startswith(os.path.realpath(root) + "/")
