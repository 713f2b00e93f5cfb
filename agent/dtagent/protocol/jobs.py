"""One node's share of a job attempt, as dttui asks for it and as the agent reports it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from dtagent.protocol.bounds import MOST, check_ports, check_range
from dtagent.protocol.notices import Notice
from dtagent.protocol.sentences import SENTENCES

MAX_ATTEMPT = 10**6
MAX_WORLD_SIZE = 10**7
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

    @classmethod
    def _missing_(cls, value: object) -> EndReason | None:
        # What an agent without codes says, and what job directories of its time have.
        return cls.PROCESS_FAILED if value == "a process failed" else None


@dataclass(frozen=True)
class AttemptKey:
    """Names one gang start of one job."""

    job_id: str
    attempt: int

    def __post_init__(self) -> None:
        """Raise OutOfRangeError for a number that no attempt has."""
        check_range("attempt", self.attempt, 0, MAX_ATTEMPT)


@dataclass(frozen=True)
class TextFile:
    """A generated file of the bundle."""

    path: str
    """Relative to the attempt's directory; no `..`, not absolute."""
    text: str
    executable: bool = False


@dataclass(frozen=True)
class PrepareRequest:
    """Asks a host to make ready for an attempt: directory, files, GPUs, port, interface. Idempotent."""

    key: AttemptKey
    node_rank: int
    python: str
    """Interpreter of the job's processes: an absolute path, or a name looked up on PATH."""
    master_address: str
    """Where the rendezvous store will listen; the route to it decides the interface."""
    reserve_port: bool
    """Whether this node must find a free port: the master always."""
    port_range: tuple[int, int]
    """First and last port that it may be."""
    cuda_slots: int
    """How many NVIDIA GPUs the node will use; 0 for CPU and simulated GPUs."""
    required_paths: list[str] = field(default_factory=list)
    """Absolute paths that must exist here."""
    simulated_slots: int = 0
    """How many simulated GPUs the node will use."""
    simulated_total: int = 0
    """How many of them the host is said to have."""
    preferred_port: int | None = None
    """One of the range to take if it is free: the one that the other hosts were seen to reach."""
    is_behind_prefix: bool = False
    """Whether what is put before the interpreter decides which it is: it is not looked for on the host then."""

    def __post_init__(self) -> None:
        """Raise OutOfRangeError for ports that there are none of."""
        check_ports("port_range", self.port_range)
        if self.preferred_port is not None:
            check_range("preferred_port", self.preferred_port, 1, 65535)


@dataclass(frozen=True)
class PrepareReply:
    """What only the host could know; the holes of a Plan are filled from it."""

    directory: str
    """Absolute path of the attempt's directory."""
    python: str
    """Absolute path of the interpreter; as it was asked for where it is behind a prefix."""
    payload: str
    """Absolute path of the directory with dtagent's payload scripts."""
    interface: str | None = None
    """Network interface that leads to the master address; `None` where none could be told."""
    source_address: str | None = None
    """This host's own address on that interface."""
    master_port: int | None = None
    gpu_ids: list[int] = field(default_factory=list)
    """Indices of the NVIDIA GPUs set aside, as many as `cuda_slots`."""
    user_ids: str | None = None
    """Numbers of the agent's user and group, `1000:1000`."""


@dataclass(frozen=True)
class UploadRequest:
    """One part of a file for the attempt's directory; parts come in order."""

    key: AttemptKey
    path: str
    offset: int
    """Where the part goes, in bytes; it must equal what is there already."""
    data: str
    """Base64, at most `rpc.MAX_CHUNK_BYTES` when decoded."""
    executable: bool = False


@dataclass(frozen=True)
class WorkRequest:
    """Asks for the attempt's `work` to be filled with files that are named by their content. Idempotent."""

    key: AttemptKey
    tree: str
    """SHA-256 of the list of files, as `tree.encode_tree` writes it."""
    size: int
    """Bytes of that list."""
    text: str | None = None
    """The list itself, where it is short enough to come along."""


@dataclass(frozen=True)
class WorkReply:
    """Whether all files lie there, or what has to be pushed before that is asked again."""

    is_complete: bool
    missing: list[str] = field(default_factory=list)
    """SHA-256 of what this host does not have, in the order in which it is expected: the list itself alone, or some of
    the files; after those there may be more."""
    missing_bytes: int = 0
    """Of all files that are missing, as far as the list is known."""


@dataclass(frozen=True)
class PushRequest:
    """The next bytes of what `WorkReply.missing` named, one content after the other."""

    key: AttemptKey
    offset: int
    """How many bytes came before."""
    data: str | bytes = b""
    """The bytes that come along with the request; in base64 for an agent whose greeting does not say that it takes
    those. At most `rpc.MAX_PUSH_BYTES`."""


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


class WarmState(str, Enum):
    """How far a process is that holds torchrun's imports for jobs to come."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True)
class WarmRequest:
    """Asks for such a process under an interpreter. Idempotent; it is not waited for."""

    python: str
    """Interpreter of the job's processes, as in `PrepareRequest`."""
    env: dict[str, str] = field(default_factory=dict)
    """What the job adds to the environment; those variables count that Python and torch read when they start."""


@dataclass(frozen=True)
class WarmReply:
    """One such process."""

    python: str
    """Absolute path of the interpreter."""
    state: WarmState
    reason: str = ""
    """Why there is none."""
    torch: str | None = None
    """Version of what is imported."""
    pid: int | None = None
    memory_mib: int | None = None
    """What it holds now, its share where pages are shared with what was forked from it."""
    reason_notice: Notice | None = None


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
class Leftover:
    """A process of the job that could not be ended."""

    pid: int
    command: str
    state: str
    """One letter as in /proc/PID/stat: `D` waits in the kernel."""


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


@dataclass(frozen=True)
class HelloRequest:
    """The first call on a connection."""

    versions: list[int]
    """Protocol versions the client speaks."""
    client: str = ""
    """Name and version, for the log."""


@dataclass(frozen=True)
class HelloReply:
    """Who answers."""

    version: int
    """Newest protocol version that both speak."""
    agent_version: str
    hostname: str
    pid: int
    boot_id: str
    time: float
    """Unix time, this host's clock."""
    takes_bytes: bool = False
    """Whether a request may bring bytes along, as `rpc.RequestReader` has it."""
    ends_services: bool = False
    """Whether it ends processes that only serve others when those have ended."""
    seals_rendezvous: bool = False
    """Whether its launcher has a rendezvous to which nobody writes without `StartRequest.rendezvous_key`."""
    tells_groups: bool = False
    """Whether its ranks note the process groups that they form, as `NodeStatus.groups` tells."""
    removes_containers: bool = False
    """Whether it carries out `ProcessSpec.removal`, and tells `PrepareReply.user_ids`."""
    unpacks: list[str] = field(default_factory=list)
    """What of `packing.PACKINGS` it takes a `PackedStartRequest` by."""
