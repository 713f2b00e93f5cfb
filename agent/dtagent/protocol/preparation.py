"""What is asked of a host before an attempt starts there: room, files, the working directory."""

from __future__ import annotations

from dataclasses import dataclass, field

from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.bounds import check_gpu_ids, check_ports, check_range


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
    asked_at: float | None = None
    """Unix time at which the person asked for the job, by the login node's clock; whoever waits since before that gets
    GPUs first. `None`: just now."""
    for_s: float | None = None
    """For how long its user means to need the GPUs; others are told, and nothing happens then."""
    may_restart: bool = False
    """Whether another attempt may follow: nobody who asked later gets its GPUs within seconds of a bad end, unless the
    job leaves the line meanwhile."""
    keeps: bool = False
    """Whether the attempt's directory is to stay until somebody says otherwise, as by `KeepRequest`."""
    gpu_ids: list[int] = field(default_factory=list)
    """Which NVIDIA GPUs, by their numbers, in the order of local ranks; none where any will do."""

    def __post_init__(self) -> None:
        """Raise OutOfRangeError for ports that there are none of, or GPUs that are not as many as are wanted."""
        check_ports("port_range", self.port_range)
        if self.preferred_port is not None:
            check_range("preferred_port", self.preferred_port, 1, 65535)
        check_gpu_ids("gpu_ids", self.gpu_ids, self.cuda_slots)


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
    """Indices of the NVIDIA GPUs set aside, as many as `cuda_slots`; those that the request names, in its order."""
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
