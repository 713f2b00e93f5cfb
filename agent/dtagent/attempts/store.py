"""Contents of files by their SHA-256, kept between launches so that only what changed has to be sent again.

Nothing here is trusted: a content is checked each time it is used, and one that is damaged counts as missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from dtagent.locations import make_private, store_path

KEEP_S = 14 * 24 * 3600.0
"""How long a content is kept after its last use."""
LIMIT_BYTES = 8 * 1000**3
"""How much is kept; what was not used for longest goes first."""
PARTIAL_KEEP_S = 3600.0
"""How long an unfinished content is left alone."""
COPY_BYTES = 1 << 20


class ContentStore:
    """The contents under one root."""

    def __init__(self, root: Path) -> None:
        self.directory = store_path(root)

    def has(self, digest: str, size: int) -> bool:
        """Whether a content is there, as far as its length tells."""
        try:
            return self.path_of(digest).stat().st_size == size
        except OSError:
            return False

    def read(self, digest: str, limit_bytes: int) -> bytes | None:
        """Return a content; `None` where it is missing, damaged or longer than `limit_bytes`."""
        try:
            with open(self.path_of(digest), "rb", opener=_not_a_link) as stream:
                data = stream.read(limit_bytes + 1)
        except OSError:
            return None
        if len(data) > limit_bytes or hashlib.sha256(data).hexdigest() != digest:
            self.drop(digest)
            return None
        self._touch(digest)
        return data

    def copy(self, digest: str, target: Path, *, executable: bool) -> bool:
        """Write a content to a new file; return whether it was there, and whole.

        A copy and no link: what a job does to its files must not reach the next job's.

        Raises:
            OSError: the file cannot be written.
        """
        try:
            source = open(self.path_of(digest), "rb", opener=_not_a_link)  # noqa: SIM115 - closed below
        except OSError:
            return False
        mode = 0o700 if executable else 0o600
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        found = hashlib.sha256()
        with source, os.fdopen(os.open(target, flags, mode), "wb", 0) as stream:
            while data := source.read(COPY_BYTES):
                found.update(data)
                stream.write(data)
        if found.hexdigest() != digest:
            self.drop(digest)
            return False
        self._touch(digest)
        return True

    def drop(self, digest: str) -> None:
        """Remove a content."""
        with contextlib.suppress(OSError):
            self.path_of(digest).unlink()

    def prune(self, now: float, limit_bytes: int = LIMIT_BYTES) -> None:
        """Remove what was not used for long, and more where there is too much; `now` is Unix time."""
        found = []
        for path in self.directory.glob("*/*"):
            with contextlib.suppress(OSError):
                info = path.lstat()
                keep_s = PARTIAL_KEEP_S if path.name.startswith(".") else KEEP_S
                if now - info.st_mtime > keep_s:
                    path.unlink()
                else:
                    found.append((info.st_mtime, info.st_size, path))
        total = sum(size for _, size, _ in found)
        for _mtime, size, path in sorted(found):
            if total <= limit_bytes:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size

    def path_of(self, digest: str) -> Path:
        """Return where a content is, or would be."""
        return self.directory / digest[:2] / digest[2:]

    def _touch(self, digest: str) -> None:
        with contextlib.suppress(OSError):
            os.utime(self.path_of(digest))


class Incoming:
    """Takes contents that come one after the other as a single stream of bytes, and files each under its name.

    Args:
        store: where they go.
        expected: SHA-256 and length of each, in the order in which they come.
    """

    def __init__(self, store: ContentStore, expected: Sequence[tuple[str, int]]) -> None:
        self._store = store
        self._left = list(reversed(expected))
        self._partial = store.directory / "partial" / f".{os.getpid()}-{id(self):x}"
        self._hash = hashlib.sha256()
        self._length = 0
        self.received = 0
        """Bytes taken."""
        self._file_empty()

    def feed(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            ValueError: more came than was expected, or a content that has another hash.
            OSError: it cannot be written.
        """
        rest = memoryview(data)
        while rest:
            if not self._left:
                raise ValueError("more came than was asked for")
            digest, size = self._left[-1]
            part = rest[: size - self._length]
            make_private(self._partial.parent)
            with open(self._partial, "ab" if self._length else "wb", 0, opener=_private) as stream:
                stream.write(part)
            self._hash.update(part)
            self._length += len(part)
            self.received += len(part)
            rest = rest[len(part) :]
            if self._length == size:
                self._file(digest)
        self._file_empty()

    def close(self) -> None:
        """Give up what is not whole."""
        self._partial.unlink(missing_ok=True)

    def _file_empty(self) -> None:
        while self._left and self._left[-1][1] == 0:
            make_private(self._partial.parent)
            os.close(_private(str(self._partial), os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
            self._file(self._left[-1][0])

    def _file(self, digest: str) -> None:
        self._left.pop()
        found, self._hash, self._length = self._hash.hexdigest(), hashlib.sha256(), 0
        if found != digest:
            self._partial.unlink(missing_ok=True)
            raise ValueError(f"the content that came is not {digest[:16]}…")
        target = self._store.path_of(digest)
        make_private(target.parent)
        # Not synchronised: after a power cut a content may be damaged, and is found to be when it is used.
        os.replace(self._partial, target)


def free_bytes(path: Path) -> int:
    """Return how much this user may still write to the file system of a directory."""
    info = os.statvfs(path)
    return info.f_bavail * info.f_frsize


def _not_a_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
