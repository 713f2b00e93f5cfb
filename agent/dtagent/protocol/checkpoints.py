"""What hosts are asked about the checkpoints of a job: which are complete, and which is the newest."""

from __future__ import annotations

from dataclasses import dataclass, field

from dtagent.protocol.notices import Notice

MAX_DIRECTORIES = 16
MAX_COMPLETE = 256
"""Asked for of one directory."""
MAX_PARTS = 256
"""Of one checkpoint: so many hosts have written it at most."""
MAX_SEARCH_S = 60.0
PART = "part"
"""Form of what one host has written of a checkpoint, without the file that names all of it."""
JOINED = "joined"
"""What is called, in a directory of copies, where parts are brought together."""


@dataclass(frozen=True)
class CheckpointsRequest:
    """Asks for the newest complete checkpoints of directories."""

    directories: list[str]
    """Absolute paths, where scripts write them."""
    unwanted: list[str] = field(default_factory=list)
    """Paths of checkpoints that are passed over: who resumed from them came to nothing."""
    most: int = 1
    """How many are told of each directory; of parts at least a few."""
    seconds: float = 20.0
    """How long the search of each may take: a network disk that is gone hangs."""
    verify_s: float = 0.0
    """How long of it the newest may be read for, to see by checksums whether it has changed since it was written."""
    parts: bool = False
    """Whether those are told, too, of which the directory may have a part alone."""


@dataclass(frozen=True)
class FoundCheckpoint:
    """One that was written to its end."""

    path: str
    """Absolute path of its directory, or of its file."""
    form: str
    """Whose form it has: `complete-file`, `hugging-face`, `deepspeed`, `megatron`, `torch-dcp`, `lightning`, `file`."""
    step: int | None = None
    """Step or iteration, where its name tells it."""
    size_bytes: int = 0
    """Of all its files."""
    time: float = 0.0
    """Unix time at which it was changed last, by the clock of its file system."""
    changed_ns: int | None = None
    """The same of its newest file, in ns, as it was before it was looked at; `None` where an older agent tells none."""


@dataclass(frozen=True)
class PassedCheckpoint:
    """One that is not complete, or not wanted."""

    path: str
    why: str = ""
    why_notice: Notice | None = None


@dataclass(frozen=True)
class CheckpointsOf:
    """What one directory has."""

    complete: list[FoundCheckpoint] = field(default_factory=list)
    """The newest one first."""
    passed: list[PassedCheckpoint] = field(default_factory=list)
    """Newer ones; the newest few."""
    detail: str = ""
    """Why it could not be told."""
    detail_notice: Notice | None = None
    parts: list[FoundCheckpoint] = field(default_factory=list)
    """Where they are asked for: newer ones of which not all shards are here, the newest one first; one without the file
    that names all of it has the form `part`."""


@dataclass(frozen=True)
class CheckpointsReply:
    """In the order of the directories; one that does not exist has no checkpoints."""

    directories: list[CheckpointsOf] = field(default_factory=list)


@dataclass(frozen=True)
class WrittenIn:
    """Where and when an attempt of a job that others have followed wrote checkpoints."""

    directory: str
    """Absolute path."""
    since: float
    """Unix time at which it began, by the host's clock: what was changed last before that is of others."""
    until: float
    """Likewise, at which the one after it began."""


@dataclass(frozen=True)
class DropRequest:
    """Asks to remove the complete checkpoints of attempts that others have followed."""

    written: list[WrittenIn]
    spared: list[str] = field(default_factory=list)
    """Paths of checkpoints that stay."""
    seconds: float = 45.0
    """How long it may take; what is left then is removed by the next call."""
    own: list[FoundCheckpoint] = field(default_factory=list)
    """Complete ones of the running attempt: what goes has their form and is called as they are, but for its number."""
    step: int | None = None
    """Newest step of which the running attempt has one on every host that has any: what goes is not newer. `None`
    removes nothing."""


@dataclass(frozen=True)
class DropReply:
    """What was removed."""

    count: int = 0
    size_bytes: int = 0
    detail: str = ""
    """Why something that was to go is still there; of several the first."""
    detail_notice: Notice | None = None


@dataclass(frozen=True)
class JoinRequest:
    """Asks to make one checkpoint of its parts."""

    store: str
    """Absolute path of a directory of copies."""
    parts: list[str]
    """Absolute paths, `MAX_PARTS` at most; that which this host has written first, where it has written one."""
    seconds: float = 45.0
    """How long it may take."""


@dataclass(frozen=True)
class JoinReply:
    """What came of it."""

    path: str = ""
    """Absolute path of the whole; empty where there is none."""
    detail: str = ""
    """Why there is none."""
    detail_notice: Notice | None = None
