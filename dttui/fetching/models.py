"""What is to be fetched and what has become of it, as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path


@dataclass(frozen=True)
class RemoteFile:
    """A file on a host, and where it goes here."""

    node: str
    source: str
    """Absolute path there."""
    target: str
    """Path below the directory that it is fetched to; checked, so that it is below it."""
    size_bytes: int
    time_ns: int
    """Of the last change, by the host's clock."""
    inode: int


@dataclass(frozen=True)
class FetchRequest:
    """What a person wants."""

    paths: tuple[str, ...] = ()
    """On the hosts, absolute or relative to the job's working directory; what the attempt has saved, where there are
    none."""
    nodes: tuple[str, ...] = ()
    """Only of these; of all, where there are none."""
    attempt: int | None = None
    """`None` for the newest that has run."""
    into: Path | None = None
    """Where it goes; `None` to bring nothing, only to see what there is."""
    replaces: bool = False
    """Whether other files that have the places of these make way."""


class FileOutcome(str, Enum):
    """What has become of a file."""

    FETCHED = "fetched"
    """It came, and its content is the host's."""
    HERE = "here"
    """It was here already, with the host's content."""
    IN_THE_WAY = "in-the-way"
    """Something else has its place, and was left alone."""
    CHANGED = "changed"
    """It became another file while it was fetched."""
    FAILED = "failed"


@dataclass(frozen=True)
class FetchedFile:
    """A file, and what has become of it."""

    file: RemoteFile
    outcome: FileOutcome
    reason: str = ""
    """In words, where it is not here now, or not as it is on the host."""

    @property
    def is_here(self) -> bool:
        """Whether it is here now."""
        return self.outcome in (FileOutcome.FETCHED, FileOutcome.HERE)


@dataclass(frozen=True)
class Listing:
    """What one host has."""

    node: str
    files: tuple[RemoteFile, ...] = ()
    notes: tuple[str, ...] = ()
    """What it has besides, and is not fetched, in words."""
    missing: Mapping[int, str] = field(default_factory=dict)
    """The how manieth path that was asked for → why nothing is listed of it, in words."""
    error: str = ""
    """Why it has told nothing."""
    hint: str = ""
    is_whole: bool = True
    """Whether there is nothing more of what was asked for, as far as it could be looked at."""


@dataclass(frozen=True)
class Progress:
    """How far a fetch is."""

    done_bytes: int
    total_bytes: int
    file: RemoteFile
    """The one of which something came last."""


@dataclass
class Report:
    """How a fetch went."""

    directory: str | None
    """Where the files are now; `None` where nothing was brought."""
    attempt: int = 0
    listings: list[Listing] = field(default_factory=list)
    done: list[FetchedFile] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """Of all files that are here now."""
        return sum(item.file.size_bytes for item in self.done if item.is_here)


OnListed = Callable[[Sequence[Listing]], None]
OnProgress = Callable[[Progress], None]
OnDone = Callable[[FetchedFile], None]
