"""Where the processes of ranks stand: what a host is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.notices import Notice

MOST_FRAMES = 48
"""Of a thread that are told: the innermost ones, and a few outermost."""
OUTERMOST = 8
MOST_THREADS = 24
"""Of a process."""
MOST_CHILDREN = 16
"""Of a rank that are looked at: workers that load data, and others."""
MOST_CALLS = 32
"""Newest collectives of each process group that are told."""
MOST_GROUPS = 32
MOST_TIMES = 256
"""Newest collectives of each process group of which it is told when they were called."""
MOST_NAME = 200
"""Characters of a name or a path."""
MOST_RANKS = 512
"""Of one node that are asked for at once."""


@dataclass(frozen=True)
class StacksRequest:
    """Asks where ranks of an attempt stand."""

    key: AttemptKey
    ranks: list[int] | None = None
    """Global ranks; `None` for all that are here."""


@dataclass(frozen=True)
class Frame:
    """One call that has not come back."""

    name: str
    file: str
    line: int | None = None


@dataclass(frozen=True)
class Thread:
    """A thread of Python's."""

    name: str
    frames: list[Frame]
    """The innermost first."""
    is_main: bool = False


@dataclass(frozen=True)
class Call:
    """A collective that a rank has called."""

    number: int
    """Of those in its process group, from 1."""
    name: str
    """`all_reduce`, without the backend."""
    sizes: list[list[int]] = field(default_factory=list)
    """Of its inputs."""
    dtypes: list[str] = field(default_factory=list)
    is_done: bool = False


@dataclass(frozen=True)
class GroupCalls:
    """The collectives of one process group that torch's flight recorder has of a rank."""

    group: str
    """Its name, alike on all its ranks."""
    description: str
    ranks: list[int]
    """Members, where the recorder tells them."""
    enqueued: int | None = None
    """Number of the newest one that was called."""
    completed: int | None = None
    calls: list[Call] = field(default_factory=list)
    """The newest ones, in order."""


@dataclass(frozen=True)
class ProcessStacks:
    """One process: a rank's own, or one below it."""

    pid: int
    state: str
    """One letter, as in /proc/PID/stat: `T` stopped, `D` in an uninterruptible wait."""
    command: str = ""
    wait_channel: str = ""
    """What it waits for in the kernel, where that may be read."""
    source: str = ""
    """By what its stack was read: `py-spy`, `torch`, `faulthandler`; empty where it could not be."""
    detail: str = ""
    """Why it could not be, with the words of what was tried."""
    threads: list[Thread] = field(default_factory=list)
    detail_notice: Notice | None = None


@dataclass(frozen=True)
class RankStacks:
    """Where a rank stands."""

    rank: int
    process: ProcessStacks | None = None
    """`None` where its process is gone."""
    has_ended: bool = False
    """Whether it has ended well."""
    children: list[ProcessStacks] = field(default_factory=list)
    groups: list[GroupCalls] = field(default_factory=list)


@dataclass(frozen=True)
class StacksReply:
    """In order of rank."""

    ranks: list[RankStacks] = field(default_factory=list)


@dataclass(frozen=True)
class GroupTimes:
    """When a rank called the collectives of one process group, the newest ones in order."""

    group: str
    """Its name, alike on all its ranks."""
    numbers: list[int] = field(default_factory=list)
    """Of those in its process group, from 1."""
    times: list[float] = field(default_factory=list)
    """Unix time of each, this host's clock."""


@dataclass(frozen=True)
class RankTimes:
    """When a rank called its collectives, by torch's flight recorder."""

    rank: int
    groups: list[GroupTimes] = field(default_factory=list)


@dataclass(frozen=True)
class CallTimesReply:
    """In order of rank; without those that do not say."""

    ranks: list[RankTimes] = field(default_factory=list)
