"""What hosts are asked about the checkpoints of a job: which are complete, and which is the newest."""

from __future__ import annotations

from dataclasses import dataclass, field

from dtagent.protocol.notices import Notice

MAX_DIRECTORIES = 16
MAX_COMPLETE = 16
"""Asked for of one directory."""
MAX_SEARCH_S = 60.0


@dataclass(frozen=True)
class CheckpointsRequest:
    """Asks for the newest complete checkpoints of directories."""

    directories: list[str]
    """Absolute paths, where scripts write them."""
    unwanted: list[str] = field(default_factory=list)
    """Paths of checkpoints that are passed over: who resumed from them came to nothing."""
    most: int = 1
    """How many are told of each directory."""
    seconds: float = 20.0
    """How long the search of each may take: a network disk that is gone hangs."""
    verify_s: float = 0.0
    """How long of it the newest may be read for, to see by checksums whether it has changed since it was written."""


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


@dataclass(frozen=True)
class CheckpointsReply:
    """In the order of the directories; one that does not exist has no checkpoints."""

    directories: list[CheckpointsOf] = field(default_factory=list)
