"""What hosts are asked about copies of checkpoints: to take one, to send one, which they keep, and to let them go."""

from __future__ import annotations

from dataclasses import dataclass, field

from dtagent.protocol.notices import Notice

KEY_BYTES = 32
MAX_COPY_S = 4 * 3600.0
"""One copy; the next try goes on where it was cut."""
MAX_STORES = 16
STORE = ".dttui-copies"
"""What the directory of copies is called, in a directory of checkpoints: no form of a checkpoint begins with a dot."""


@dataclass(frozen=True)
class TakeRequest:
    """Asks a host to let one other send it a checkpoint."""

    key: str
    """Of this copy alone, in hex: who sends proves that he has it."""
    store: str
    """Absolute path of the directory of copies."""
    address: str
    """Where it listens, the training address."""
    port_range: tuple[int, int]
    older: list[str] = field(default_factory=list)
    """Directories of copies of earlier attempts, newest first: they count for what is kept."""
    keep: int = 1
    """How many copies of one rank's checkpoints stay, the newest."""


@dataclass(frozen=True)
class TakeReply:
    """It listens."""

    port: int


@dataclass(frozen=True)
class SendRequest:
    """Asks a host to send a checkpoint to another, and to answer once that has it or cannot."""

    key: str
    path: str
    """Absolute path of the checkpoint here."""
    form: str
    attempt: int
    """Which wrote it."""
    node_rank: int
    """Of the node whose processes wrote it, in that attempt."""
    address: str
    port: int
    step: int | None = None
    time: float = 0.0
    bytes_per_s: int = 0
    """Most; 0 for as fast as it goes."""
    size_bytes: int = 0
    """Of all its files when it was found complete."""
    changed_ns: int | None = None
    """When any of them had been changed last by then; what is otherwise now is refused. `None` where nobody knows."""


@dataclass(frozen=True)
class SendReply:
    """How it went."""

    path: str = ""
    """Absolute path of the copy on the other host; empty where there is none."""
    size_bytes: int = 0
    """Of the checkpoint."""
    sent_bytes: int = 0
    """Of them, those that it had not got in an earlier try."""
    seconds: float = 0.0
    detail: str = ""
    """Why there is none."""
    detail_notice: Notice | None = None


@dataclass(frozen=True)
class CopiesRequest:
    """Asks which copies there are; with `drop`, removes them."""

    stores: list[str]
    drop: bool = False


@dataclass(frozen=True)
class HeldCopy:
    """A whole copy of a checkpoint that another node has written."""

    path: str
    """Absolute path, of a file or a directory."""
    form: str
    attempt: int
    """Which wrote it."""
    node_rank: int
    source: str = ""
    """Its path where it was written."""
    step: int | None = None
    size_bytes: int = 0
    time: float = 0.0
    """Unix time at which it was written, by the clock there."""
    changed_ns: int | None = None
    """When any of its files had been changed last there; `None` where an older agent tells none."""


@dataclass(frozen=True)
class CopiesReply:
    """What is there."""

    held: list[HeldCopy] = field(default_factory=list)
