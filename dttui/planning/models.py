"""A Plan: everything that will run, with named holes for what only the start can know. Pure data."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from dtagent.protocol.alike import fold, unfold
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from dttui.frameworks.base import NodePlace
from dttui.frameworks.bundle import Hole, PlannedFile, PlannedProcess, fill, is_in_full
from dttui.planning.cost.calibration import CostBasis
from dttui.planning.cost.estimate import Estimate
from dttui.planning.cost.rules_of_thumb import RulesOfThumb
from dttui.planning.formal import Formal
from dttui.planning.health import HealthPolicy
from dttui.planning.needed_module import NeededModule
from dttui.planning.recovery import RecoveryPolicy
from dttui.planning.resumption import Resume, Resumption
from dttui.planning.training_length import TrainingLength
from dttui.spec.container import Container
from dttui.spec.findings import Finding, Severity

__all__ = [
    "Aggregate",
    "Bindings",
    "BoundPlan",
    "Finding",
    "Hole",
    "NodeBinding",
    "Plan",
    "PlannedFile",
    "PlannedNode",
    "PlannedProcess",
    "Severity",
    "fill",
]

DEFAULT_PYTHON = "python3"
"""Interpreter of jobs, where nothing else is said."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Aggregate(_Value):
    """What a job uses of the chosen environments, in all."""

    node_count: int
    """Environments chosen."""
    gpu_count: int
    """GPUs the job uses."""
    gpus_there: int = 0
    """GPUs the environments have."""
    gpu_types: dict[str, int] = Field(default_factory=dict)
    """GPU type → how many the job uses, in the order the nodes come."""
    simulated_gpu_count: int = 0
    """How many of them are simulated."""
    gpus_known: bool = True
    """Whether it is known of every environment how many GPUs the job uses; those not known count as nothing."""
    gpu_memory_bytes: int | None = None
    """Memory of the GPUs the job uses, of all that say how much they have; of simulated ones as it is declared."""
    cpu_count: int | None = None
    """Logical CPUs of all that say how many they have."""
    memory_bytes: int | None = None
    """Host memory of all that say how much they have."""
    zones: tuple[str, ...] = ()
    """Zones, each once."""

    @property
    def is_distributed(self) -> bool:
        """Whether more than one node takes part."""
        return self.node_count > 1

    @property
    def leaves_gpus(self) -> bool:
        """Whether the environments have more GPUs than the job uses."""
        return self.gpu_count < self.gpus_there


class PlannedCommand(_Value):
    """A command that is run beside a node's processes. Strings may hold holes."""

    argv: tuple[str, ...]
    """Command and arguments."""
    cwd: str
    """Working directory."""


class PlannedNode(NodePlace):
    """One node of the plan: its place, and what runs there."""

    python: str
    """Interpreter of the job's processes."""
    prefix: tuple[str, ...] = ()
    """Words before it by which it is another one than the host's: `run.prefix` where that leads elsewhere."""
    zone: str | None = None
    """Availability zone."""
    files: tuple[PlannedFile, ...] = ()
    """Generated files."""
    processes: tuple[PlannedProcess, ...] = ()
    """What runs."""
    required_paths: tuple[str, ...] = ()
    """Absolute paths that must exist on the host."""
    required_room: dict[str, int] = Field(default_factory=dict)
    """Which of them must have so many bytes free."""
    health: PlannedCommand | None = None
    """What says whether it goes well there, in the environment of the first of its processes."""
    port_range: tuple[int, int] | None = None
    """Where its own port is taken from; `None` where only the master needs one."""
    gpu_names: tuple[str, ...] = ()
    """Names of the host's GPUs, by index; fewer where they are not known."""

    @property
    def starts_own_ranks(self) -> bool:
        """Whether what runs there starts its ranks itself, and nobody knows when, or how many."""
        return any(process.starts_ranks for process in self.processes)

    @property
    def serves_only(self) -> bool:
        """Whether all that runs on it serves other nodes, so that nothing there ends by itself."""
        return bool(self.processes) and all(process.is_service for process in self.processes)


class Plan(_Value):
    """What will run. As JSON its nodes are folded, unless that is asked for `IN_FULL`."""

    job_name: str
    """Name of the job."""
    framework: str
    """Framework that made the commands; empty where the job names none, which is an error of the plan."""
    backend: str
    """`nccl`, or what ranks talk by without it: `gloo`, `grpc`, `mpi`."""
    world_size: int
    """Ranks in all."""
    master_address: str
    """Address of node rank 0."""
    port_range: tuple[int, int]
    """Where the master's port is taken from."""
    upload: str | None
    """Directory on the login node that is sent to every host, relative to the job file's; `None` where nothing is."""
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
    estimate: Estimate | None = None
    """What it costs; `None` where the model or the GPUs are not known, or are simulated on a CPU that is not."""
    cost_basis: CostBasis | None = None
    """What the estimate can be made of again, once it is known what the job has taken."""
    rules_of_thumb: RulesOfThumb | None = None
    """What the seeds' tables say, beside the estimate."""
    formal: Formal | None = None
    """The job in the terms of seed 001."""
    python: str | None = None
    """Interpreter that the job itself names, for every node."""
    own_variables: tuple[str, ...] = ()
    """Names of the variables that the job itself sets."""
    rendezvous_timeout_s: float = 300.0
    """How long ranks may take until all have started."""
    container: Container | None = None
    """What the processes run in; `None` where that is the host itself."""
    length: TrainingLength | None = None
    """How long the training is to be, as far as the job says."""
    min_nodes: int | None = None
    """Nodes with which torchrun goes on where others are lost, numbering ranks by itself; `None` where all are needed
    and ranks are as planned."""
    log_cap_bytes: int = 2 << 30
    """Of each rank's stdout and stderr, how much is kept on the host's disk."""
    metric_patterns: dict[str, str] = Field(default_factory=dict)
    """Name of a metric → expression that it is looked for by in the ranks' output."""
    require_process_group: Literal["auto", True, False] = "auto"
    """Whether all ranks must form one process group, as the job has it."""
    health: HealthPolicy | None = None
    """When each node's `health` is run, and what its failures come to; `None` where the job asks for none."""
    candidates: tuple[str, ...] = ()
    """Environments that do as well as its nodes, where the job waits for its hosts."""
    imports: tuple[NeededModule, ...] = ()
    """What the script that is sent needs of its interpreter; nothing where it is elsewhere, or a command."""
    by_count: bool = False
    """Whether the job says how many nodes there are, and not which: these stand for any, and it cannot be launched."""
    resumption: Resumption = Resumption()
    """What commands get besides in an attempt that is not the first."""

    recovery: RecoveryPolicy = RecoveryPolicy()
    """What the job allows where an attempt fails."""

    @model_validator(mode="before")
    @classmethod
    def _unfold(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("nodes"), dict):
            return {**data, "nodes": unfold(data["nodes"])}
        return data  # Of an earlier version, each node in full; or not read from JSON.

    @model_serializer(mode="wrap")
    def _fold(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        document: dict[str, Any] = handler(self)
        if is_in_full(info):
            return document
        nodes = document.pop("nodes")
        return {**document, "nodes": fold(nodes)}  # Last, so that who wants the rest need not read them.

    @property
    def slots(self) -> int:
        """GPUs in all, one for a node without; ranks where each drives one."""
        return sum(node.slots for node in self.nodes)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that forbid the launch."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def preview(self) -> Plan:
        """It as who only looks at it is told: which nodes are meant, of which it counts as many, a launch asks."""
        asked = (
            finding.model_copy(update={"severity": Severity.INFO}) if finding.code == "no-nodes" else finding
            for finding in self.findings
        )
        return self.model_copy(update={"findings": tuple(asked)}) if self.by_count else self

    @property
    def python_inside(self) -> str | None:
        """Interpreter of the job in its container; `None` without one."""
        return (self.python or DEFAULT_PYTHON) if self.container is not None else None


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
    port: int | None = None
    """Port it has reserved; the master's is the rendezvous'."""
    user_ids: str | None = None
    """Numbers of the agent's user and group, `1000:1000`; `None` from an agent that does not tell."""


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
    resume: Resume | None = None
    """What the attempt goes on from; `None` where it begins anew."""


class BoundPlan(_Value):
    """A plan without holes: what an attempt executes and journals."""

    plan: Plan
    """Nodes' processes are filled in."""
    bindings: Bindings
    """What they were filled with."""

    @property
    def own_ports(self) -> dict[str, int]:
        """The port of each node that has reserved one because its framework wants that, by name."""
        ports = {node.name: self.bindings.nodes[node.name].port for node in self.plan.nodes if node.port_range}
        return {name: port for name, port in ports.items() if port is not None}
