"""Opens what lies beneath a directory, and never what a link leads to from there: not even one that was just put there.

Each component is opened by itself in the one above and must be neither a link nor `..`, which is what openat2 does with
RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS: no step goes anywhere but down, so that whatever is renamed meanwhile, each
directory was below the root when it was opened. Where links lead is found out first, and what is there is opened by its
own name.
"""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""A pipe that takes the file's place keeps nobody waiting."""


class LinkError(OSError):
    """Part of a path is a link or `..`, or what it names is no regular file."""


class Root:
    """A directory, held open: whatever takes its place later, this is what is read."""

    def __init__(self, directory: Path) -> None:
        self.place = os.path.realpath(directory)
        """Its path without links, to tell where links lead; nothing is opened by it again."""
        self._descriptor = os.open(self.place, _DIRECTORY)
        weakref.finalize(self, os.close, self._descriptor)

    def own_name(self, path: str) -> str | None:
        """Return the name without links of what a path beneath this directory leads to; `None` for what is outside."""
        above = self.place.rstrip("/") + "/"
        real = os.path.realpath(above + path)
        return real[len(above) :] if real.startswith(above) else None

    def status(self, name: str) -> os.stat_result:
        """Return what is there by a name; of a link, its own.

        Raises:
            LinkError: what is above it is a link.
            OSError: there is nothing, or it cannot be looked at.
        """
        with self._above(name) as (parent, last):
            return os.stat(last, dir_fd=parent, follow_symlinks=False)

    def open(self, name: str) -> BinaryIO:
        """Open a regular file for reading.

        Raises:
            LinkError: it or what is above it is a link, or it is no regular file.
            OSError: it cannot be read.
        """
        with self._above(name) as (parent, last):
            info = os.stat(last, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISREG(info.st_mode):  # Some devices do something when they are opened.
                descriptor = os.open(last, _FILE, dir_fd=parent)
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return os.fdopen(descriptor, "rb")
                os.close(descriptor)
        raise LinkError(errno.ELOOP, os.strerror(errno.ELOOP), name)

    def entries(self, name: str = "") -> list[tuple[str, os.stat_result]]:
        """Return what is in a directory, in order; of links, their own status.

        Raises:
            LinkError: it or what is above it is a link.
            OSError: it cannot be read.
        """
        with self._above(f"{name}/." if name else ".") as (parent, last):
            descriptor = os.open(last, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
        found = []
        try:
            for entry in sorted(os.listdir(descriptor)):
                with suppress(FileNotFoundError):
                    found.append((entry, os.stat(entry, dir_fd=descriptor, follow_symlinks=False)))
        finally:
            os.close(descriptor)
        return found

    @contextmanager
    def _above(self, name: str) -> Iterator[tuple[int, str]]:
        """Open the directory that holds a name."""
        *above, last = name.split("/")
        if last == "..":
            raise LinkError(errno.EXDEV, os.strerror(errno.EXDEV), name)
        parent = self._descriptor
        try:
            for part in above:
                if part == "..":
                    raise LinkError(errno.EXDEV, os.strerror(errno.EXDEV), name)
                below = os.open(part, _DIRECTORY, dir_fd=parent)
                if parent != self._descriptor:
                    os.close(parent)
                parent = below
            yield parent, last
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise LinkError(error.errno, error.strerror, name) from error
            raise
        finally:
            if parent != self._descriptor:
                with suppress(OSError):
                    os.close(parent)
