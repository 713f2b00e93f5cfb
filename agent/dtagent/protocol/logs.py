"""The logs of an attempt, as they are asked for and come."""

from __future__ import annotations

from dataclasses import dataclass, field

from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.bounds import MOST, check_range
from dtagent.protocol.jobs import NodeStatus


@dataclass(frozen=True)
class FollowRequest:
    """Asks for what is new since a cursor, waiting up to `wait_s` for it: nothing is lost, nothing comes twice."""

    key: AttemptKey
    offsets: dict[str, int] = field(default_factory=dict)
    """Bytes already had of each stream: `<rank>.out`, `<rank>.err`, `launcher.err`, `metrics`."""
    stamp: str = ""
    """`FollowReply.stamp` of the reply before; a change of status ends the wait."""
    wait_s: float = 10.0
    max_bytes: int = 256 * 1024
    """The client's grant: no more than this comes before it asks again, so that nothing else waits long behind it."""
    wants_trainer: bool = False
    """Whether the client takes the stream `trainer`: metrics found in the logs, in lines as those of `metrics`."""
    inodes: dict[str, int] | None = None
    """`LogChunk.inode` of the streams in `offsets`; `None` from a client that knows neither these nor gaps."""

    def __post_init__(self) -> None:
        """Raise OutOfRangeError for an offset that no file has."""
        for stream, offset in self.offsets.items():
            check_range(f"offsets.{stream[:100]}", offset, 0, MOST)


@dataclass(frozen=True)
class LogChunk:
    """Bytes of one stream, from `offset` on."""

    stream: str
    offset: int
    data: str
    """Base64."""
    gap_bytes: int = 0
    """How many bytes before `offset` are not kept any more, from where the client was."""
    inode: int | None = None
    """Names the file."""
    is_new_file: bool = False
    """Whether the script replaced or emptied the file since, so that the client's offset was of another one."""


@dataclass(frozen=True)
class FollowReply:
    """Status, and the next bytes of each stream that has some. `more` means: ask again at once."""

    status: NodeStatus
    stamp: str
    """Names this status; opaque."""
    chunks: list[LogChunk] = field(default_factory=list)
    more: bool = False
