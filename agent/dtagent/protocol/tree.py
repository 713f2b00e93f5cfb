"""The list of files that make up a working directory, as both sides write and read it: names, contents by hash."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

MAX_FILES = 20_000
MAX_BYTES = 2 * 1000**3
MAX_TREE_BYTES = 8 * 1024**2
MAX_NAME_BYTES = 255
"""Of one part of a path; what file systems allow."""
MAX_PATH_BYTES = 1024
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class TreeEntry:
    """One file."""

    path: str
    """Relative to the working directory, with `/` between its parts."""
    digest: str
    """SHA-256 of its content, in hex."""
    size: int
    executable: bool


def encode_tree(entries: Iterable[TreeEntry]) -> str:
    """Return the list as text: the same files give the same text."""
    rows = [[item.path, item.digest, item.size, int(item.executable)] for item in entries]
    return json.dumps(sorted(rows), ensure_ascii=False, separators=(",", ":"))


def decode_tree(text: str) -> list[TreeEntry]:
    """Read the list.

    Raises:
        ValueError: it is none, has a path that leads elsewhere or a name that no file can have, or is too large.
    """
    try:
        rows = json.loads(text)
    except RecursionError as error:
        raise ValueError("not a list of files") from error
    if not isinstance(rows, list) or len(rows) > MAX_FILES:
        raise ValueError(f"not a list of at most {MAX_FILES} files")
    entries = [_entry(row) for row in rows]
    if sum(entry.size for entry in entries) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes in all")
    paths = {entry.path for entry in entries}
    parents = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    if len(paths) != len(entries) or paths & parents:
        raise ValueError("two files have the same place")
    return entries


def digest_of(text: str) -> str:
    """Return the name of a list: the SHA-256 of its text."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_digest(text: str) -> bool:
    """Whether a text is a SHA-256 in hex, and so fit for a file name."""
    return _DIGEST.fullmatch(text) is not None


def problem_of(path: str) -> str | None:
    """Return why a path cannot be that of a file in a working directory, `None` where it can."""
    try:
        parts = [part.encode() for part in path.split("/")]
    except UnicodeEncodeError:
        return "is not UTF-8"
    if any(part in (b"", b".", b"..") or b"\0" in part for part in parts):
        return "leads elsewhere"
    if len(path.encode()) > MAX_PATH_BYTES or any(len(part) > MAX_NAME_BYTES for part in parts):
        return f"is longer than {MAX_NAME_BYTES} bytes, or {MAX_PATH_BYTES} with its directories"
    return None


def _entry(row: object) -> TreeEntry:
    if not isinstance(row, list) or len(row) != 4:
        raise ValueError("a file is described by four values")
    path, digest, size, executable = row
    if not isinstance(path, str) or not isinstance(digest, str) or not is_digest(digest):
        raise ValueError("a file has a path and a SHA-256")
    if type(size) is not int or size < 0 or executable not in (0, 1):
        raise ValueError("a file has a size, and may be run or not")
    if problem := problem_of(path):
        raise ValueError(f"{path[:100]!r} {problem}")
    return TreeEntry(path, digest, size, bool(executable))
