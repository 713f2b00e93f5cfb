"""A place in the line for GPUs of a host: who asks, who is before him, and whether it is his turn."""

from __future__ import annotations

from dataclasses import dataclass, field

from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.bounds import check_gpu_ids
from dtagent.protocol.telemetry import GpuHold, GpuWait


@dataclass(frozen=True)
class QueueRequest:
    """Asks for a place in the line, or keeps it: without a word it lapses after some seconds. Idempotent."""

    key: AttemptKey
    asked_at: float
    """Unix time at which the person asked, by the login node's clock: the order is by it, on all hosts alike."""
    cuda_slots: int
    """How many NVIDIA GPUs the node will use."""
    simulated_slots: int = 0
    simulated_total: int = 0
    """How many of them the host is said to have."""
    stands_aside: bool = False
    """Whether it lets others by for now: another of its hosts cannot be reached."""
    leaves: bool = False
    """Whether it gives the place up."""
    gpu_ids: list[int] = field(default_factory=list)
    """Which NVIDIA GPUs, by their numbers; none where any will do."""

    def __post_init__(self) -> None:
        """Raise OutOfRangeError for GPUs that are not as many as are wanted."""
        check_gpu_ids("gpu_ids", self.gpu_ids, self.cuda_slots)


@dataclass(frozen=True)
class QueueReply:
    """How things stand on this host."""

    time: float
    """Unix time, this host's clock."""
    has_room: bool = False
    """Whether there are enough free GPUs for all who are before it, and for it."""
    is_set_aside: bool = False
    """Whether the job has its GPUs here, or has had them, and waits no more."""
    free: int = 0
    """GPUs that are free, of the kind that it waits for, or of those that it has named."""
    before: list[GpuWait] = field(default_factory=list)
    """Who is to get GPUs before it, the first one first."""
    holds: list[GpuHold] = field(default_factory=list)
    """Who has GPUs now."""
