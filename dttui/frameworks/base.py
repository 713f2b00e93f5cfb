"""What a framework is to the planner: a name to choose, and the files and commands of each node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeVar

from dtagent.protocol.rdma import RdmaPort
from pydantic import BaseModel, ConfigDict

from dttui.frameworks.bundle import PlannedFile, PlannedProcess
from dttui.frameworks.traits import ScriptImports as ScriptImports
from dttui.frameworks.traits import Traits
from dttui.spec.findings import Finding
from dttui.spec.models import Job, Run
from dttui.spec.section import Section


class Rank(Enum):
    """What one rank of a framework drives."""

    SLOT = "slot"
    """A GPU, or the CPU of a node without."""
    NODE = "node"
    """All GPUs of a node."""


class NoOptions(Section):
    """The options of a framework that has none."""


_Made = TypeVar("_Made")
_Options = TypeVar("_Options", bound=Section)


class NodePlace(BaseModel):
    """One node's place in the job."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """The environment's."""
    node_rank: int
    """0 is the master."""
    address: str
    """Where other nodes reach it."""
    slots: int
    """GPUs of it that the job uses; 1 without GPUs."""
    cuda_slots: int
    """How many of the slots are NVIDIA GPUs."""
    gpu_ids: tuple[int, ...] = ()
    """Which GPUs of the host the job wants, in the order of local ranks; none where any will do."""
    simulated: bool
    """Whether its GPUs are simulated."""
    ranks: tuple[int, ...]
    """Global ranks, contiguous; one a slot or one a node, as the framework has it."""


class NodeLayout(NodePlace):
    """One node's place in the job, and what else its files and commands depend on."""

    interface: str | None = None
    """Network interface the job asks for; `None` where the route to the master decides."""
    role: str = "worker"
    """`master`, `worker` or `parameter_server`, as the job has it."""
    rdma: tuple[RdmaPort, ...] | None = None
    """Its InfiniBand and RoCE ports; `None` where nothing is known of them."""
    torch: str | None = None
    """Version of torch that its interpreter has, where that is known."""


@dataclass(frozen=True)
class DatasetLocation:
    """The dataset of a job, looked up."""

    id: str
    """Dataset id."""
    version: str | None
    """Version id; `None` where the job gives the path itself and no version."""
    path: str
    """Where it lies on every host."""


class LinkFigures(NamedTuple):
    """What a link does to a message, one way."""

    latency_s: float
    """α."""
    bandwidth: float
    """1/β, bytes a second."""


@dataclass(frozen=True)
class LinkTuning:
    """What the slowest link between the nodes asks for, where it was measured, or the job declares it."""

    bucket_bytes: int | None = None
    """Gradients that had best be reduced at once; `None` for what the framework does by itself."""
    window_bytes: int = 0
    """What is on its way over the link at once."""
    agreement_s: float = 0.0
    """What it takes all ranks at least to agree upon something."""
    between: LinkFigures | None = None
    """The link itself."""
    inside: LinkFigures | None = None
    """The slowest inside of a node that has several ranks, where that was measured in all of them."""


@dataclass(frozen=True)
class JobLayout:
    """All that a framework needs to know to write the bundle of every node."""

    job: Job
    """The job as written."""
    run: Run
    """What runs; `job.run`, known to be there."""
    backend: str
    """`nccl`, or what ranks talk by without it: `gloo`, `grpc`, `mpi`."""
    master_address: str
    """Where the rendezvous store listens."""
    world_size: int
    """Ranks in all."""
    nodes: tuple[NodeLayout, ...]
    """Nodes, in order of rank."""
    cwd: str
    """Working directory of the processes; may hold holes."""
    dataset: DatasetLocation | None
    """The dataset; `None` for an explicit none."""
    shares: tuple[int, ...] | None = None
    """Samples of a step that each rank has; `None` where the job does not say, or all alike."""
    options: Section = field(default_factory=NoOptions)
    """`job.framework_options`, as the framework's `options` has them."""
    tuning: LinkTuning = LinkTuning()
    """What the link between the nodes asks for."""
    _shared: dict[Callable[[JobLayout], Any], Any] = field(default_factory=dict, compare=False, repr=False)

    def options_as(self, kind: type[_Options]) -> _Options:
        """Return the options as the model that a framework has for them."""
        return self.options if isinstance(self.options, kind) else kind()

    @property
    def bucket_bytes(self) -> int | None:
        """Gradients that are reduced at once: what the job says, else what the link asks for; else `None`."""
        reduction = self.job.communication.all_reduce
        return (reduction.buffer_size if reduction is not None else None) or self.tuning.bucket_bytes

    def slots_by_address(self) -> dict[str, int]:
        """Return the slots of each address, which comes once: launchers refuse a host that is listed twice."""
        slots: dict[str, int] = {}
        for node in self.nodes:
            slots[node.address] = slots.get(node.address, 0) + node.slots
        return slots

    def shared(self, make: Callable[[JobLayout], _Made]) -> _Made:
        """Return what is the same for every node, made once a layout."""
        if make not in self._shared:
            self._shared[make] = make(self)
        made: _Made = self._shared[make]
        return made

    def shared_file(self, make: Callable[[JobLayout], PlannedFile]) -> PlannedFile:
        """Return a file that is the same on every node, made once a layout."""
        return self.shared(make)


class Framework(Traits, Protocol):
    """A way to launch a job. Pure: the same layout gives the same bundle. What it may leave out is in `Traits`."""

    @property
    def name(self) -> str:
        """What `framework:` in a job file says."""

    @property
    def label(self) -> str:
        """What a select shows."""

    @property
    def summary(self) -> str:
        """Its kind of parallelism, in a word or two."""

    @property
    def description(self) -> str:
        """What it is for, in a sentence."""

    @property
    def features(self) -> Sequence[str]:
        """What it offers, one phrase each."""

    @property
    def requires(self) -> Sequence[str]:
        """Python packages that must be there on every host."""

    @property
    def options(self) -> type[Section]:
        """What `framework_options` of a job may hold."""

    @property
    def rank(self) -> Rank:
        """What one rank drives."""

    @property
    def needs_ports(self) -> bool:
        """Whether every node, not the master alone, has to reserve a port; `port_hole` names each."""

    @property
    def available(self) -> bool:
        """Whether this version of dttui can launch it."""

    def check(self, job: Job) -> list[Finding]:
        """Return what in the job does not go with this framework."""

    def check_layout(self, layout: JobLayout) -> list[Finding]:
        """Return what does not go with the nodes that were chosen."""

    def node_files(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedFile, ...]:
        """Return the generated files of one node."""

    def processes(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedProcess, ...]:
        """Return the commands of one node."""
