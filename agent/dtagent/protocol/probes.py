"""What hosts are asked before a job starts on them: who reaches whom, what lies at paths, what a framework says."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import Enum

from dtagent.protocol.bounds import check_range
from dtagent.protocol.notices import Notice

TOKEN_BYTES = 32
"""Of the secret that a probe shows before it gets any answer, as lower-case hexadecimal text."""
PING = b"P"
"""A message of a probe to a listener, which answers with the same byte."""
LOAD = b"L"
"""Announces a load: then come its size as a `TOTAL` and the load. The listener counts it, and tells by a `TOTAL` every
few milliseconds and at the end how much has come."""
TOTAL = struct.Struct(">Q")
MAX_LISTEN_S = 60.0
"""Longest life of a listener."""
MAX_LOAD_BYTES = 256 << 20
"""Most bytes that one listener takes in."""
MAX_LOAD_S = 2.0
MAX_TARGETS = 8
MAX_PATHS = 64


class ReachOutcome(str, Enum):
    """How an attempt to connect ended."""

    REACHED = "reached"
    REFUSED = "refused"
    """The host, or a firewall in its name, said no."""
    TIMED_OUT = "timed out"
    """Nobody said anything."""
    NO_ROUTE = "no route"
    UNRESOLVED = "unresolved"
    """The name has no address here."""
    STRANGER = "stranger"
    """Somebody answered, but not the listener."""
    FAILED = "failed"
    """Anything else; `detail` says what."""


@dataclass(frozen=True)
class ListenRequest:
    """Asks for a listener that probes of other hosts can reach; it is gone after `seconds` at the latest."""

    token: str
    """What a probe must show; also the listener's name. `TOKEN_BYTES` in hexadecimal."""
    seconds: float
    port_range: tuple[int, int] | None = None
    """`None`: an ephemeral port, as gloo and NCCL take."""
    load_bytes: int = 0
    """How much it takes in, all probes together."""
    address: str | None = None
    """What it listens at, where that stands for one address of the host; `None` for all."""


@dataclass(frozen=True)
class ListenReply:
    """Where it listens."""

    port: int


@dataclass(frozen=True)
class HushRequest:
    """Ends a listener. One that is gone already is no error."""

    token: str


@dataclass(frozen=True)
class ReachTarget:
    """A listener on another host."""

    address: str
    """Name or IP address."""
    port: int
    token: str
    pings: int = 5
    """Round trips to measure."""
    load_bytes: int = 0
    """What to send for a measurement of the bandwidth; 0 for none."""
    load_s: float = 1.0
    """How long to send at most."""

    def __post_init__(self) -> None:
        """Raise OutOfRangeError for a port that there is none of."""
        check_range("port", self.port, 1, 65535)


@dataclass(frozen=True)
class ReachRequest:
    """Asks a host to connect to listeners, all at once."""

    targets: list[ReachTarget]
    seconds: float = 5.0
    """How long each may take to answer; the load comes on top."""


@dataclass(frozen=True)
class Reached:
    """What became of one target."""

    outcome: ReachOutcome
    address: str | None = None
    """IP address that was tried; where the name has several, the one that answered or else the first."""
    source: str | None = None
    """This host's own address toward it."""
    interface: str | None = None
    """Which the traffic leaves by; for an address of this host the one that carries it."""
    round_trip_s: float | None = None
    """Median of the pings."""
    bytes_per_s: float | None = None
    detail: str = ""
    detail_notice: Notice | None = None


@dataclass(frozen=True)
class ReachReply:
    """In the order of the targets."""

    results: list[Reached]


@dataclass(frozen=True)
class PathsRequest:
    """Asks what lies at absolute paths."""

    paths: list[str]
    seconds: float = 5.0
    """How long each may take: a network disk that is gone hangs."""
    programs: list[str] = field(default_factory=list)
    """Names that are looked for as a job's process would: absolute paths, and bare names on the `PATH`."""
    search_path: str | None = None
    """The `PATH` that the job sets; `None` for that of the host."""


@dataclass(frozen=True)
class PathState:
    """What lies at one path."""

    path: str
    exists: bool | None = None
    """`None` where it could not be told; `detail` says why."""
    is_directory: bool | None = None
    is_writable: bool | None = None
    """For the agent's user; of a path that is not there, whether it could be made."""
    free_mib: int | None = None
    """On the file system that holds it, or would."""
    total_mib: int | None = None
    detail: str = ""
    detail_notice: Notice | None = None


@dataclass(frozen=True)
class PathsReply:
    """In the order of the paths, and the agent's own directory, where attempts and logs go."""

    paths: list[PathState] = field(default_factory=list)
    root: PathState | None = None
    missing_programs: list[str] | None = None
    """Those of the programs that are not there, or cannot be executed; `None` where that could not be told."""


@dataclass(frozen=True)
class ImageRequest:
    """Asks whether a job can be started in a container."""

    engine: str
    """`docker`, `podman` or `apptainer`."""
    image: str


@dataclass(frozen=True)
class ImageReply:
    """What its engine says of an image."""

    has_engine: bool
    has_image: bool | None = None
    """`None` where it could not be told; `detail` says why."""
    image_id: str | None = None
    detail: str = ""
    detail_notice: Notice | None = None


@dataclass(frozen=True)
class ValidationRequest:
    """Asks what a framework's own code says of what a job would give it.

    `${DIRECTORY}` and `${PAYLOAD}` may stand in the texts.
    """

    python: str
    """Interpreter that has the framework."""
    checks: list[str]
    """Names of `dtagent.payload.validation`, or `module:function` of a package."""
    argv: list[str] = field(default_factory=list)
    """The command that the job would start."""
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """Name → text of the generated files."""
    world_size: int = 1
    seconds: float = 20.0
    """How long all of it may take; importing a framework takes some."""
    prefix: list[str] = field(default_factory=list)
    """Words to start the interpreter behind, as the job will."""


@dataclass(frozen=True)
class FrameworkAnswer:
    """What one check came to; with neither text the framework has nothing against it."""

    refusal: str | None = None
    """The framework's own words."""
    unseen: str | None = None
    """Why it could not be looked at."""
    refusal_notice: Notice | None = None
    unseen_notice: Notice | None = None


@dataclass(frozen=True)
class ValidationReply:
    """Verdicts by check; those that do not apply to the job are left out."""

    verdicts: dict[str, FrameworkAnswer] = field(default_factory=dict)
    unseen: str | None = None
    """Why there are none."""
    unseen_notice: Notice | None = None
