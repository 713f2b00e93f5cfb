"""One node's share of a job attempt, as dttui asks for it and as the agent reports it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.health import Health, HealthCheck
from dtagent.protocol.meeting import Disturbance, FormedGroup, Numbering
from dtagent.protocol.notices import Notice
from dtagent.protocol.sentences import SENTENCES

MAX_NODE_RANKS = 4096
"""Ranks of one node that are told."""
PROCESS_NAME = r"(?:launcher|service(?:-[a-z0-9]{1,20})?|\d{1,7})"
"""What processes of an attempt may be called, and so their logs: a pattern; a rank goes by its number."""


class NodeState(str, Enum):
    """What has become of an attempt on one host.

        PREPARED ──start──► RUNNING ──every process gone──► ENDED
            │                  └─stop─► STOPPING ──scan empty──► ENDED
            └─discard─► DISCARDED          └─ something will not die ─► UNKILLABLE

    `LOST` is a supervisor that vanished without a last word; the daemon clears its processes and says so.
    """

    PREPARED = "prepared"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    UNKILLABLE = "unkillable"
    LOST = "lost"
    DISCARDED = "discarded"

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen to the attempt on this host."""
        return self in (NodeState.ENDED, NodeState.UNKILLABLE, NodeState.LOST, NodeState.DISCARDED)


class EndReason(str, Enum):
    """Why a supervisor ends an attempt: the codes of those of its reasons that decide what a job comes to."""

    STOPPED = "stopped"
    """It was asked to."""
    PROCESS_FAILED = "process-failed"
    SELF_FENCED = "self-fenced"
    """Its controller was silent for `StartRequest.self_fence_s`."""

    @classmethod
    def _missing_(cls, value: object) -> EndReason | None:
        # What an agent without codes says, and what job directories of its time have.
        return cls.PROCESS_FAILED if value == "a process failed" else None


@dataclass(frozen=True)
class TextFile:
    """A generated file of the bundle."""

    path: str
    """Relative to the attempt's directory; no `..`, not absolute."""
    text: str
    executable: bool = False


@dataclass(frozen=True)
class ProcessSpec:
    """A command the supervisor starts."""

    name: str
    """`launcher`, the rank it is, or `service`, `service-rendezvous`; also the name of its log files."""
    argv: list[str]
    cwd: str
    env: dict[str, str] = field(default_factory=dict)
    """Added to the environment of the agent's user."""
    rank: int | None = None
    """Global rank where the process is one rank itself."""
    warm_start: bool = False
    """Whether it is torchrun, to be forked from a process that has its imports done, where there is one."""
    is_service: bool = False
    """Whether it only serves others: it is ended once those of this node have ended well, or where there are none,
    once `StopRequest.services_only` says so. An agent whose greeting does not say that it ends services never would."""
    removal: list[str] = field(default_factory=list)
    """Command that removes what a daemon of others runs for the process, once all processes of the attempt are gone: a
    container. An agent whose greeting does not say that it removes containers never would."""
    python_path: str = ""
    """Directory that is added to the end of PYTHONPATH, whatever that is on the host."""


@dataclass(frozen=True)
class StartRequest:
    """Starts a prepared attempt. A second one with the same key changes nothing."""

    key: AttemptKey
    node_rank: int
    processes: list[ProcessSpec]
    ranks: list[int]
    """Global ranks this node will run, in order of local rank."""
    files: list[TextFile] = field(default_factory=list)
    """Generated files, written before anything starts."""
    grace_s: float = 15.0
    """Between TERM and KILL when the attempt is stopped."""
    secrets: dict[str, str] = field(default_factory=dict)
    """Environment variables that are never written to disk."""
    log_cap_bytes: int = 2 << 30
    """Of each rank's stdout and stderr, how much is kept on the host's disk: the beginning and the end."""
    rendezvous_key: str = ""
    """By which the nodes of an elastic attempt know each other, alike on all; the launcher alone gets it, by a file
    that it removes. An agent whose greeting does not say that it seals a rendezvous would not."""
    self_fence_s: float | None = None
    """Silence of those who follow the attempt after which its processes are ended; `None` for never. An agent whose
    greeting does not say that it fences itself never would."""
    health: HealthCheck | None = None
    """What says whether it goes well here. An agent whose greeting does not say that it checks health never asks it."""
    metric_patterns: dict[str, str] = field(default_factory=dict)
    """Name of a metric → regular expression whose group `value`, or else the first, is its number in a line of a rank's
    output. An agent whose greeting does not say that it searches metrics never looks for it."""


@dataclass(frozen=True)
class PackedStartRequest:
    """A `StartRequest` of which comes packed what hosts are sent alike; for agents whose greeting says they can."""

    key: AttemptKey
    packing: str
    """By what, one of `HelloReply.unpacks`."""
    row: list[Any]
    """What is this host's own: the one of `rows`, as `alike.fold` has it."""
    secrets: dict[str, str] = field(default_factory=dict)
    """Environment variables that are never written to disk."""
    rendezvous_key: str = ""
    """As in `StartRequest`."""
    data: bytes | None = None
    """The rest of what `alike.unfold` takes, as JSON and packed; the bytes that come along with the request."""


@dataclass(frozen=True)
class StopRequest:
    """Ends an attempt here, or discards it where it was not started."""

    key: AttemptKey
    force: bool = False
    """Kill at once, without the grace period."""
    services_only: bool = False
    """All that needed them has ended well everywhere: end the services of a node that runs nothing else, and count that
    as a good end. Without effect where something else runs."""
    node_rank: int | None = None
    """Of the attempt here, where the client knows that it was started: by this its processes are known though nothing
    is recorded of them any more."""


@dataclass(frozen=True)
class ProcessExit:
    """How one process of the attempt ended."""

    name: str
    ended_at: float
    """Unix time, this host's clock."""
    exit_code: int | None = None
    """0 also for a service that was ended since it was needed no more, however it took that."""
    signal: int | None = None
    user_cpu_s: float | None = None
    """Of it and of those that it waited for."""
    system_cpu_s: float | None = None
    peak_memory_mib: int | None = None
    """Of the largest of them."""
    oom_kills: int | None = None
    """How often the kernel of this host had killed somebody for want of memory in the half minute before, by a cgroup's
    limit too; `None` where it does not tell."""
    at_memory_limit: bool | None = None
    """Whether it had done so in a cgroup of the node's, while that or one above had reached its limit; `None` where
    they do not tell."""
    is_oom_killed_here: bool | None = None
    """Whether it had killed one of the node's own processes then, by the counts of their cgroups; `None` where these do
    not tell, or some processes are in others: an engine's, a scope's."""


@dataclass(frozen=True)
class Usage:
    """What an attempt used on one host, all its processes together."""

    user_cpu_s: float | None = None
    system_cpu_s: float | None = None
    peak_memory_mib: int | None = None
    """The kernel's count where the attempt had a cgroup that counts memory; else the most seen now and then."""


@dataclass(frozen=True)
class RankFailure:
    """What a failed rank, or the launcher that watched it, left behind."""

    rank: int
    time: float
    """Unix time, this host's clock."""
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None
    """Last line of the exception, `ValueError: …`."""
    traceback: str | None = None
    memory_limit_mib: int | None = None
    """The least of what `ulimit -v` and its cgroups let a rank have that ended by an exception."""


@dataclass(frozen=True)
class Leftover:
    """A process of the job that could not be ended."""

    pid: int
    command: str
    state: str
    """One letter as in /proc/PID/stat: `D` waits in the kernel."""


@dataclass(frozen=True)
class NodeStatus:
    """An attempt on one host, now."""

    key: AttemptKey
    node_rank: int
    state: NodeState
    reason: str = ""
    """Why it ended, where it did not end well by itself."""
    started_at: float | None = None
    """Unix time, this host's clock."""
    ranks_started: list[int] = field(default_factory=list)
    """Ranks whose process has come as far as running the user's code, at most `MAX_NODE_RANKS`."""
    exits: list[ProcessExit] = field(default_factory=list)
    failures: list[RankFailure] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    usage: Usage | None = None
    """Once the attempt has ended here."""
    warnings: list[str] = field(default_factory=list)
    """What went wrong with the keeping of records here: a full disk, a damaged journal, logs that cannot be capped."""
    cut_logs: list[str] = field(default_factory=list)
    """Streams such as `3.out` that passed the cap, so that this host has dropped their middle."""
    has_checkpoints: bool | None = None
    """Whether anything lies in the attempt's own directory of checkpoints, once it has ended here; `None` where its
    processes were told another directory, which may be on a file system that hangs."""
    disturbances: list[Disturbance] = field(default_factory=list)
    """What the launcher found altered of the rendezvous."""
    numbering: Numbering | None = None
    """Where torchrun numbers the ranks by itself, once all of this node have started."""
    groups: list[FormedGroup] | None = None
    """Every rank of which it is known, in the groups that it has formed; `None` from an agent that does not tell."""
    reason_notice: Notice | None = None
    warnings_notice: list[Notice | None] | None = None
    """In the order of the warnings."""
    health: Health | None = None
    """What `StartRequest.health` has come to; `None` until that is known."""

    @property
    def end_reason(self) -> EndReason | None:
        """Why the supervisor ends it, where that is the code of `reason`; of an agent without codes `reason` is it."""
        try:
            return EndReason(self.reason if self.reason_notice is None else self.reason_notice.code)
        except ValueError:
            return None

    @property
    def reason_code(self) -> str:
        """Code of `reason`; empty where it is not known here, and of an agent without codes if it is no `EndReason`."""
        if self.reason_notice is not None:
            return self.reason_notice.code if self.reason_notice.code in SENTENCES else ""
        return self.end_reason.value if self.end_reason is not None else ""
