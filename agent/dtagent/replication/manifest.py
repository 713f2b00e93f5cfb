"""What a checkpoint consists of: the files that are copied, as both sides name them."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dacite import Config, DaciteError, from_dict

from dtagent.checkpoints.entries import is_of_others
from dtagent.checkpoints.forms import named_beside
from dtagent.protocol import sentences
from dtagent.protocol.said import Said

MOST_FILES = 20_000
MOST_DEPTH = 32


class CopyError(Exception):
    """It cannot be copied.

    Args:
        why: says why.
    """

    def __init__(self, why: Said) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True)
class CopiedFile:
    """One file of a checkpoint."""

    path: str
    """Relative to the checkpoint; empty where that is a file itself."""
    size: int
    time_ns: int
    """When it was changed last."""


@dataclass(frozen=True)
class Manifest:
    """A checkpoint as it was when its copying began."""

    name: str
    """What its file or directory is called."""
    source: str
    """Absolute path where it was written."""
    form: str
    attempt: int
    node_rank: int
    step: int | None
    time: float
    files: list[CopiedFile] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """Of all its files."""
        return sum(file.size for file in self.files)

    @property
    def changed_ns(self) -> int:
        """When any of its files was changed last."""
        return max((file.time_ns for file in self.files), default=0)

    @property
    def is_file(self) -> bool:
        """Whether it is one file, and no directory."""
        return [file.path for file in self.files] == [""]

    @property
    def digest(self) -> str:
        """Tells it from any other, and from what lies in its place later."""
        text = json.dumps([self.source, self.attempt, self.node_rank, [vars(file) for file in self.files]])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def beside(self) -> tuple[str, str] | None:
        """Name and content of the file beside it that names it, where its form has one."""
        return named_beside(self.form, self.name)

    @property
    def age(self) -> tuple[int, int, float]:
        """What the newest has most of."""
        return self.attempt, -1 if self.step is None else self.step, self.time


def manifest_of(path: Path, **told: Any) -> Manifest:
    """Return what lies at a path now.

    Raises:
        CopyError: it holds what is no file, or too much.
        OSError: it cannot be read.
    """
    files = [CopiedFile("", *_seen(path))] if not path.is_dir() else sorted(_files(path), key=lambda file: file.path)
    return Manifest(path.name, str(path), files=files, **told)


def _files(top: Path) -> list[CopiedFile]:
    def refuse(error: OSError) -> None:
        raise error

    found: list[CopiedFile] = []
    for parent, folders, names in os.walk(top, onerror=refuse):
        here = Path(parent)
        if here == top:
            # A directory that is a checkpoint itself may hold copies of others', and what later attempts write.
            folders[:] = [name for name in folders if not is_of_others(name)]
        for name in folders:
            if (here / name).is_symlink():
                raise CopyError(sentences.COPY_OF_A_LINK(path=str(here / name)))
        for name in names:
            relative = str((here / name).relative_to(top))
            if _is_unsafe(relative):
                raise CopyError(sentences.COPY_OF_A_NAME(path=repr(relative)))
            found.append(CopiedFile(relative, *_seen(here / name)))
        if len(found) > MOST_FILES:
            raise CopyError(sentences.TOO_MANY_FILES(limit=MOST_FILES))
    return found


def _seen(path: Path) -> tuple[int, int]:
    seen = os.stat(path)
    if not stat.S_ISREG(seen.st_mode):
        raise CopyError(sentences.COPY_OF_NO_FILE(path=str(path)))
    return seen.st_size, seen.st_mtime_ns


def decoded(words: dict[str, Any]) -> Manifest:
    """Return the manifest that another host has sent; whatever it names lies within the copy.

    Raises:
        CopyError: it is none, or names what lies elsewhere.
    """
    try:
        manifest = from_dict(Manifest, words, Config(strict=True))
    except (DaciteError, TypeError, ValueError) as error:
        raise CopyError(sentences.COPY_MAKES_NO_SENSE()) from error
    names = [file.path for file in manifest.files]
    is_many = not 0 < len(names) <= MOST_FILES or len(set(names)) < len(names)
    is_outside = any(map(_is_unsafe, [manifest.name] if manifest.is_file else [manifest.name, *names]))
    has_bad_numbers = manifest.node_rank < 0 or any(file.size < 0 for file in manifest.files)
    if is_many or is_outside or has_bad_numbers or "/" in manifest.name:
        raise CopyError(sentences.COPY_MAKES_NO_SENSE())
    return manifest


def _is_unsafe(path: str) -> bool:
    parts = path.split("/")
    if len(parts) > MOST_DEPTH or not path.isprintable():
        return True
    return any(part in ("", ".", "..") or len(os.fsencode(part)) > 240 for part in parts)
