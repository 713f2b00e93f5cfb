"""What an attempt has written on a host: told by place, listed by file, and read in parts that are checked by hash."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.bounds import MOST, check_range
from dtagent.protocol.notices import Notice
from dtagent.protocol.tree import problem_of

MAX_LOOK_S = 20.0
"""A look at all places of one attempt."""
MAX_PLACES = 32
"""Places that are told of one attempt."""
MAX_ASKED = 64
"""Paths that may be asked for at once."""
MAX_LISTED = 4000
"""Files in one answer; the others are asked for afterwards."""
MAX_FILES = 20_000
"""Files that are listed of one host."""
MAX_DEPTH = 32
"""Directories below a place, one in the other."""
DIGEST_BYTES = 64 * 1024 * 1024
"""Longest part of a file that is hashed in one call."""


class PlaceKind(str, Enum):
    """Why a place is one of the attempt's."""

    CHECKPOINTS = "checkpoints"
    """`DTTUI_CHECKPOINT_DIR` leads there."""
    OUTPUT = "output"
    """An argument of the script names it."""
    WORK = "work"
    """It is in the working directory."""
    ASKED = "asked"
    """A person asks for it."""

    @classmethod
    def _missing_(cls, value: object) -> PlaceKind:
        return cls.WORK


@dataclass(frozen=True)
class SavedRequest:
    """Asks what an attempt has written since its start."""

    key: AttemptKey
    seconds: float = 10.0
    """How long the look may take; what was found by then is told."""


@dataclass(frozen=True)
class SavedPlace:
    """A directory, or a single file, in which there is something new since the attempt's start."""

    path: str
    """Absolute."""
    kind: PlaceKind
    count: int
    """Files that are new or were changed."""
    size_bytes: int
    """Of those."""
    newest: float
    """Unix time, this host's clock: the last change of any of them."""
    is_whole: bool = True
    """Whether all of it was looked at."""
    goes_at: float | None = None
    """Unix time, this host's clock, from which on the agent may remove it, once enough newer attempts are here and
    unless it is kept; `None` where it never does."""


@dataclass(frozen=True)
class SavedReply:
    """What was found."""

    places: list[SavedPlace] = field(default_factory=list)
    """Those of checkpoints first, and of each kind the one with most bytes."""
    is_whole: bool = True
    """Whether there are no more, as far as is known."""
    is_kept: bool = False
    """Whether the attempt's directory stays until somebody says otherwise."""


@dataclass(frozen=True)
class FilesRequest:
    """Asks for the files of places: of those that a person names all, else those that the attempt has written."""

    key: AttemptKey
    paths: list[str] = field(default_factory=list)
    """Absolute, or relative to the working directory of the attempt's processes."""
    start: int = 0
    """How many files were told before."""
    seconds: float = 10.0

    def __post_init__(self) -> None:
        """Raise OutOfRangeError for a number that no list has."""
        check_range("start", self.start, 0, MAX_FILES)


@dataclass(frozen=True)
class ListedPlace:
    """Where files are that belong together."""

    path: str
    """Absolute, without links."""
    name: str
    """What it is called within what is fetched: relative, and empty for the top itself."""
    kind: PlaceKind = PlaceKind.ASKED
    detail: str = ""
    """Why nothing of it is listed; empty where it is."""
    detail_notice: Notice | None = None


@dataclass(frozen=True)
class LeftOut:
    """What lies there and is not listed, and how much of each."""

    links: int = 0
    special: int = 0
    """Devices, pipes and sockets."""
    names: int = 0
    """Files whose names hold control characters or bytes that are no text, or are too long."""
    unreadable: int = 0
    """Directories that cannot be read."""
    examples: list[str] = field(default_factory=list)
    """Of each kind a few, as text."""


@dataclass(frozen=True)
class FilesReply:
    """The next files, in the order of places and names."""

    places: list[ListedPlace]
    files: list[tuple[int, str, int, int, int]]
    """Place by its index, path relative to it (empty where it is the file itself), bytes, time of the last change in
    ns, and inode."""
    more: bool
    """Whether there are more of them to be asked for."""
    is_whole: bool
    """Whether those that are told, now and before and after, are all."""
    left_out: LeftOut


@dataclass(frozen=True)
class ReadRequest:
    """Asks for some bytes of a file."""

    path: str
    """Absolute; of a link nothing is read."""
    start: int
    count: int

    def __post_init__(self) -> None:
        """Raise OutOfRangeError for what no file has."""
        check_range("start", self.start, 0, MOST)
        check_range("count", self.count, 1, MOST)


@dataclass(frozen=True)
class ReadReply:
    """Bytes of a file, and what it is like now."""

    data: str
    """Base64; fewer bytes than were asked for where the file ends, or more are not read at once."""
    size: int
    time_ns: int
    inode: int


@dataclass(frozen=True)
class DigestReply:
    """The hash of some bytes of a file, and what it is like now."""

    sha256: str
    """In hex."""
    count: int
    """Of how many bytes: fewer than were asked for where the file ends, or more are not hashed at once."""
    size: int
    time_ns: int
    inode: int


@dataclass(frozen=True)
class KeepRequest:
    """Asks that the directories of a job's attempts stay, or that they go when their time has come, as others do."""

    job_id: str
    keeps: bool = True


@dataclass(frozen=True)
class KeepReply:
    """Of which attempts that is so now."""

    directories: list[str]
    """Of each attempt that there is here, absolute; later ones follow the last."""


def is_unsafe(path: str) -> bool:
    """Whether a relative path is none that may be made elsewhere: it leads out, or would not show as what it is."""
    return bool(path) and (
        problem_of(path) is not None or not path.isprintable() or path.count("/") >= MAX_DEPTH + MAX_DEPTH
    )
