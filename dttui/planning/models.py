"""A Plan: everything that will run, with named holes for what only the start can know. Pure data."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class Hole(str, Enum):
    """What is known only at the start. Written into a plan as `${NAME}`."""

    JOB_ID = "JOB_ID"
    ATTEMPT = "ATTEMPT"
    MASTER_PORT = "MASTER_PORT"
    INTERFACE = "INTERFACE"
    GPU_IDS = "GPU_IDS"
    """Comma-separated, as CUDA_VISIBLE_DEVICES takes them."""
    DIRECTORY = "DIRECTORY"
    """The attempt's directory on the host."""
    PAYLOAD = "PAYLOAD"
    """Directory of dtagent's payload scripts on the host."""
    PYTHON = "PYTHON"

    def __str__(self) -> str:
        return "${" + self.value + "}"


class Severity(str, Enum):
    """How bad a finding is; an error forbids the launch."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Finding(_Value):
    """Something a plan or a preflight has to say."""

    code: str
    """Stable name, `cross-zone`."""
    severity: Severity
    """How bad it is."""
    subject: str
    """What it is about: a node, a key of the job."""
    message: str
    """What."""
    hint: str = ""
    """What to do."""


class Aggregate(_Value):
    """What the chosen environments add up to."""

    node_count: int
    """Environments chosen."""
    gpu_count: int
    """GPUs in all."""
    gpu_types: dict[str, int] = Field(default_factory=dict)
    """GPU type → how many, in the order the nodes come."""
    simulated_gpu_count: int = 0
    """How many of them are simulated."""
    cpu_count: int = 0
    """Logical CPUs in all."""
    memory_bytes: int = 0
    """Host memory in all."""
    zones: tuple[str, ...] = ()
    """Zones, each once."""

    @property
    def is_distributed(self) -> bool:
        """Whether more than one node takes part."""
        return self.node_count > 1


class PlannedFile(_Value):
    """A generated file of a node's bundle."""

    path: str
    """Relative to the attempt's directory."""
    text: str
    """Content."""
    executable: bool = False
    """Whether it may be run."""


class PlannedProcess(_Value):
    """A command on a node. Strings may hold holes."""

    name: str
    """`launcher`, or the rank."""
    argv: tuple[str, ...]
    """Command and arguments."""
    env: dict[str, str]
    """Environment added."""
    cwd: str
    """Working directory."""
    rank: int | None = None
    """Global rank where the process is one."""


class PlannedNode(_Value):
    """One node of the plan."""

    name: str
    """The environment's key."""
    node_rank: int
    """0 is the master."""
    address: str
    """Where other nodes reach it."""
    python: str
    """Interpreter of the job's processes."""
    slots: int
    """Processes, one a GPU; 1 without GPUs."""
    cuda_slots: int
    """How many of the slots are NVIDIA GPUs."""
    simulated: bool
    """Whether its GPUs are simulated."""
    ranks: tuple[int, ...]
    """Global ranks, contiguous."""
    zone: str | None = None
    """Availability zone."""
    files: tuple[PlannedFile, ...] = ()
    """Generated files."""
    processes: tuple[PlannedProcess, ...] = ()
    """What runs."""
    required_paths: tuple[str, ...] = ()
    """Absolute paths that must exist on the host."""


class Plan(_Value):
    """What will run."""

    job_name: str
    """Name of the job."""
    framework: str
    """Framework that made the commands."""
    backend: str
    """`nccl`, `gloo` or `mpi`."""
    world_size: int
    """Ranks in all."""
    master_address: str
    """Address of node rank 0."""
    port_range: tuple[int, int]
    """Where the master's port is taken from."""
    upload: str | None
    """Directory on the login node, beside the job file, that is sent to every host; `None` where nothing is."""
    nodes: tuple[PlannedNode, ...]
    """Nodes, in order of rank."""
    aggregate: Aggregate
    """What they add up to."""
    start_estimate_s: float
    """Seconds from launch to the first step, roughly."""
    findings: tuple[Finding, ...] = ()
    """What there is to say."""
    secrets: tuple[str, ...] = ()
    """Names of secret variables."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that forbid the launch."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)


class NodeBinding(_Value):
    """What one host answered."""

    directory: str
    """The attempt's directory there."""
    payload: str
    """dtagent's payload directory there."""
    python: str
    """Absolute path of the interpreter."""
    interface: str | None
    """Interface that leads to the master."""
    gpu_ids: tuple[int, ...] = ()
    """GPUs set aside."""


class Bindings(_Value):
    """What fills the holes of a plan for one attempt."""

    job_id: str
    """The job."""
    attempt: Annotated[int, Field(ge=0)]
    """The gang start."""
    master_port: int
    """Port the master reserved."""
    nodes: dict[str, NodeBinding]
    """By node name."""


class BoundPlan(_Value):
    """A plan without holes: what an attempt executes and journals."""

    plan: Plan
    """Nodes' processes are filled in."""
    bindings: Bindings
    """What they were filled with."""


def fill(text: str, values: dict[Hole, str]) -> str:
    """Replace the holes in a string. A hole without a value stays as it is."""
    for hole, value in values.items():
        text = text.replace(str(hole), value)
    return text


JsonValue = Any
"""What json.loads returns."""
