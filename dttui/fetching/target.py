"""The directory that files are fetched to: each path in it is opened part by part and never along a link.

A file that has not come whole lies beside its place under a name of its own, and is moved there once it is verified.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import weakref
from collections.abc import Iterator
from pathlib import Path

from dttui.errors import UsageError
from dttui.i18n import _

PART = ".dttui-part-"
"""What the name of a part begins with; the hash of the file's own follows."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PART = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOCK_TRIES = 3
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)


class NoRoomError(UsageError):
    """The disk of the directory is full."""


class InTheWayError(OSError):
    """Something else has the place of a file."""


class Target:
    """A directory, held open: whatever takes its place later, this is what is written to.

    Args:
        path: it; made where it is missing.

    Raises:
        UsageError: it is none, or cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            # The person names it, and may do so by a link; below it none is followed.
            self._descriptor = os.open(os.path.realpath(path), _DIRECTORY)
        except OSError as error:
            message = _("cannot write to {path}: {reason}").format(path=path, reason=error.strerror)
            raise UsageError(message, _("Name another directory: -o DIR.")) from error
        weakref.finalize(self, os.close, self._descriptor)

    def free_bytes(self) -> int:
        """Return how much this user may still write there."""
        info = os.fstatvfs(self._descriptor)
        return info.f_bavail * info.f_frsize

    def status(self, name: str) -> os.stat_result | None:
        """Return what is there by a path; of a link, its own; `None` where there is nothing.

        Raises:
            InTheWayError: what is above it is no directory.
            OSError: it cannot be looked at.
        """
        try:
            with self._above(name, makes=False) as (parent, last):
                return os.stat(last, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def part_size(self, name: str) -> int:
        """Return how much of a file lies beside its place."""
        try:
            found = self.status(_part_of(name))
        except OSError:
            return 0
        return found.st_size if found is not None and stat.S_ISREG(found.st_mode) else 0

    def open_file(self, name: str) -> int:
        """Open a regular file to be read; return its descriptor. Raises OSError."""
        with self._above(name, makes=False) as (parent, last):
            descriptor = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise InTheWayError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        return descriptor

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[int]:
        """Open the part of a file, for this process alone, and make the directories above it; yield its descriptor.

        Raises:
            InTheWayError: something else has its place, or another process writes it.
            NoRoomError: there is no room.
            OSError: it cannot be made.
        """
        with self.writing(), self._above(_part_of(name), makes=True) as (parent, last):
            descriptor = _locked_part(parent, last)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def put_in_place(self, name: str, *, replaces: bool) -> None:
        """Give a part that is whole the name of its file.

        Raises:
            InTheWayError: something has it, and is not to be replaced, or cannot be.
            OSError: it cannot be moved.
        """
        with self.writing(), self._above(name, makes=False) as (parent, last):
            part = os.path.basename(_part_of(name))
            try:
                if replaces:
                    os.rename(part, last, src_dir_fd=parent, dst_dir_fd=parent)
                    return
                try:
                    os.link(part, last, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
                except OSError as error:
                    if error.errno not in _NO_LINKS:
                        raise
                    # A file system without links, where nobody is asked to be quick.
                    with contextlib.suppress(FileNotFoundError):
                        os.stat(last, dir_fd=parent, follow_symlinks=False)
                        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from error
                    os.rename(part, last, src_dir_fd=parent, dst_dir_fd=parent)
                else:
                    os.unlink(part, dir_fd=parent)
            except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
                raise InTheWayError(error.errno, error.strerror, name) from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Turn a full disk into NoRoomError."""
        try:
            yield
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise NoRoomError(
                _("no room left in {path}").format(path=self.path),
                _("What came stays there: make room, and the same command goes on from it."),
            ) from error

    @contextlib.contextmanager
    def _above(self, name: str, *, makes: bool) -> Iterator[tuple[int, str]]:
        """Open the directory that holds a path, which has no `..` in it; yield it and the last part."""
        *above, last = name.split("/")
        parent = self._descriptor
        try:
            for part in above:
                if makes:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=parent)
                try:
                    below = os.open(part, _DIRECTORY, dir_fd=parent)
                except OSError as error:
                    if error.errno in (errno.ELOOP, errno.ENOTDIR):
                        raise InTheWayError(error.errno, error.strerror, name) from error
                    raise
                if parent != self._descriptor:
                    os.close(parent)
                parent = below
            yield parent, last
        finally:
            if parent != self._descriptor:
                os.close(parent)


def _locked_part(parent: int, name: str) -> int:
    """Open a part for this process alone; return its descriptor.

    Whoever held it before may have given it the name of its file meanwhile: then it is none any more.
    """
    for _try in range(_LOCK_TRIES):
        descriptor = os.open(name, _PART, 0o600, dir_fd=parent)
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
                raise InTheWayError(errno.EEXIST, os.strerror(errno.EEXIST), name)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            info = os.fstat(descriptor)
            with contextlib.suppress(FileNotFoundError):
                named = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if (named.st_dev, named.st_ino) == (info.st_dev, info.st_ino):
                    if info.st_nlink == 1:
                        return descriptor
                    os.unlink(name, dir_fd=parent)  # It got its file's name just before that fetch was killed.
        except BlockingIOError as error:
            os.close(descriptor)
            raise InTheWayError(errno.EBUSY, _("another fetch writes it"), name) from error
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise InTheWayError(errno.EBUSY, _("another fetch writes it"), name)


def _part_of(name: str) -> str:
    above, slash, last = name.rpartition("/")
    return f"{above}{slash}{PART}{hashlib.sha256(os.fsencode(last)).hexdigest()[:20]}"
