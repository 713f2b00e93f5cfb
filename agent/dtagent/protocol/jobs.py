"""One node's share of a job attempt, as dttui asks for it and as the agent reports it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


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


@dataclass(frozen=True)
class AttemptKey:
    """Names one gang start of one job."""

    job_id: str
    attempt: int


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
    """Whether this node is the master and must find a free port."""
    port_range: tuple[int, int]
    """First and last port the master may use."""
    cuda_slots: int
    """How many NVIDIA GPUs the node will use; 0 for CPU and simulated GPUs."""
    required_paths: list[str] = field(default_factory=list)
    """Absolute paths that must exist here."""


@dataclass(frozen=True)
class PrepareReply:
    """What only the host could know; the holes of a Plan are filled from it."""

    directory: str
    """Absolute path of the attempt's directory."""
    python: str
    """Absolute path of the interpreter."""
    payload: str
    """Absolute path of the directory with dtagent's payload scripts."""
    interface: str | None = None
    """Network interface that leads to the master address; `None` where none could be told."""
    source_address: str | None = None
    """This host's own address on that interface."""
    master_port: int | None = None
    gpu_ids: list[int] = field(default_factory=list)
    """Indices of the NVIDIA GPUs set aside, as many as `cuda_slots`."""


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
class ProcessSpec:
    """A command the supervisor starts."""

    name: str
    """`launcher`, or the rank it is; also the name of its log files."""
    argv: list[str]
    cwd: str
    env: dict[str, str] = field(default_factory=dict)
    """Added to the environment of the agent's user."""
    rank: int | None = None
    """Global rank where the process is one rank itself."""


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


@dataclass(frozen=True)
class StopRequest:
    """Ends an attempt here, or discards it where it was not started."""

    key: AttemptKey
    force: bool = False
    """Kill at once, without the grace period."""


@dataclass(frozen=True)
class ProcessExit:
    """How one process of the attempt ended."""

    name: str
    ended_at: float
    """Unix time, this host's clock."""
    exit_code: int | None = None
    signal: int | None = None


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
    started_at: float | None = None
    """Unix time, this host's clock."""
    ranks_started: list[int] = field(default_factory=list)
    """Ranks whose process has come as far as running the user's code."""
    exits: list[ProcessExit] = field(default_factory=list)
    failures: list[RankFailure] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)


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


@dataclass(frozen=True)
class LogChunk:
    """Bytes of one stream, from `offset` on."""

    stream: str
    offset: int
    data: str
    """Base64."""


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
