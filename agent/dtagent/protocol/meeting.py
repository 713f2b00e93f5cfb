"""How the ranks of an attempt meet: the rendezvous, who disturbed it, their numbers, the groups that they form."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from dtagent.protocol.attempt_key import MAX_WORLD_SIZE, AttemptKey
from dtagent.protocol.bounds import check_range


@dataclass(frozen=True)
class RendezvousRequest:
    """Asks whether this node's processes have found the others."""

    key: AttemptKey
    port: int
    """Where the master listens."""


@dataclass(frozen=True)
class RendezvousReply:
    """What the sockets of the attempt's processes say."""

    is_listening: bool
    """Whether one listens on the port: the master's rendezvous is there."""
    is_connected: bool
    """Whether one is connected to the port."""
    ranks_connected: list[int] | None = None
    """Ranks whose own process is: it has reached `init_process_group`. `None` from an agent that does not tell."""


class Tampering(str, Enum):
    """What somebody did who is no node of the attempt, but reaches the store of its rendezvous."""

    FORGED = "forged"
    """Wrote what no node has written."""
    REPLAYED = "replayed"
    """Put back what a node had written before."""
    DELETED = "deleted"
    SPLIT = "split"
    """Had nodes go on from different states."""


@dataclass(frozen=True)
class Disturbance:
    """Something of a rendezvous that somebody altered."""

    what: str
    """`state`, or the name of what the nodes told each other."""
    how: str
    """One of `Tampering`."""
    mended: bool
    """Whether a node has put it right; else that was the end of the rendezvous."""
    count: int = 1
    """How often."""


@dataclass(frozen=True)
class Numbering:
    """How torchrun has numbered the ranks of a node by itself: anew whenever it starts workers again."""

    ranks: list[int]
    """Global ranks, in order of local rank."""
    world_size: int
    """Of all nodes that take part."""
    restarts: int
    """How often torchrun has started the workers of this node again because some had failed."""
    port: int
    """Where the store of the ranks listens, on the node of rank 0; nodes that tell the same one belong together."""

    def __post_init__(self) -> None:
        """Raise OutOfRangeError for numbers that no ranks have."""
        check_range("number of different ranks", len(set(self.ranks)), max(1, len(self.ranks)), MAX_WORLD_SIZE)
        check_range("world_size", self.world_size, 1, MAX_WORLD_SIZE)
        check_range("restarts", self.restarts, 0, MAX_WORLD_SIZE)
        check_range("port", self.port, 0, 65535)
        for rank in self.ranks:
            check_range("rank", rank, 0, self.world_size - 1)


@dataclass(frozen=True)
class FormedGroup:
    """A process group that ranks of a node have formed, by their own word; or what they say that have formed none."""

    ranks: list[int]
    """Global ranks."""
    places: list[int] = field(default_factory=list)
    """Which rank of the group each of them is; empty where they have formed none."""
    backend: str = ""
    """As torch names it, or `horovod`; empty where they have formed none."""
    world_size: int = 0
    """Ranks of the group; 0 where they have formed none."""
    members: str = ""
    """The same for all members of one group, and of no other; empty where the group has no store to tell it."""
    turn: int = 0
    """How many other groups each of these ranks is told to have formed before this one."""
    notes: list[str] = field(default_factory=list)
    """What those have done that have formed none, or another one than they were to: `GroupNote`, or a newer agent's."""

    def __post_init__(self) -> None:
        """Raise OutOfRangeError for numbers that no group has."""
        check_range("world_size", self.world_size, 0, MAX_WORLD_SIZE)
        for rank in (*self.ranks, *self.places):
            check_range("rank", rank, 0, MAX_WORLD_SIZE)


class GroupNote(str, Enum):
    """What a rank has done that may be why it has formed no process group, or another one."""

    TORCH = "torch"
    """It has imported torch.distributed."""
    ACCELERATE = "accelerate"
    """It has imported accelerate, which decides by itself whether there is anything to distribute."""
    LAUNCHER = "launcher"
    """It has started processes of its own that may be what trains."""
    UNSEEN = "unseen"
    """It has loaded torch past what notes its groups: it may have formed any."""
    WORLD_SIZE = "world-size"
    """WORLD_SIZE was another one when it formed its group than when it was started."""
