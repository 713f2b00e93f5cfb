"""job.yaml as models: the seed DSL's sections and dttui's additions. Frozen; an unknown key is an error."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from dttui.i18n import _
from dttui.spec.problems import PathKey, PlacedValueError
from dttui.spec.text import ENV_NAME, INTERFACE_NAME, MODULE_NAME, Label, ProgramPath, Text
from dttui.spec.units import BitsPerSecond, Bytes, Nanoseconds, Number

FrameworkName = Literal["pytorch-ddp", "pytorch-fsdp", "deepspeed", "horovod", "megatron-lm", "tensorflow", "command"]


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class DataSharding(Section):
    """How data is shared out among the ranks; passed to the script."""

    method: str | None = None
    """`random`, `sequential`, …"""
    strategy: str | None = None
    """Another spelling of `method`."""
    seed: int | None = None
    """Seed of the shuffle."""
    drop_last: bool | None = None
    """Drop the last incomplete batch."""


class DataParallel(Section):
    """Settings of data parallelism."""

    batch_size: int | None = Field(default=None, gt=0)
    """Global batch size, shared out among all ranks."""
    num_workers: int | None = Field(default=None, ge=0)
    """Loader processes a rank."""
    data_sharding: DataSharding | None = None
    """How data is shared out."""


class ModelSplitting(Section):
    """How a model is cut; passed to the script."""

    method: str | None = None
    """`layer_wise`, …"""
    layers_per_node: int | None = Field(default=None, gt=0)
    """Layers on each node."""


class ModelParallel(Section):
    """Settings of model parallelism."""

    model_splitting: ModelSplitting | None = None
    """How the model is cut."""
    pipeline_stages: int | None = Field(default=None, gt=0)
    """Pipeline stages."""


class PipelineParallel(Section):
    """Settings of pipeline parallelism."""

    micro_batch_size: int | None = Field(default=None, gt=0)
    """Samples a micro-batch."""
    pipeline_stages: int | None = Field(default=None, gt=0)
    """Pipeline stages."""
    schedule: Literal["1F1B", "GPipe", "Interleaved"] | None = None
    """Order of forward and backward passes."""


class Strategy(Section):
    """How the training is made parallel."""

    type: Literal["data_parallel", "model_parallel", "pipeline_parallel", "hybrid"] = "data_parallel"
    """Kind of parallelism."""
    data_parallel: DataParallel | None = None
    """Settings of data parallelism."""
    model_parallel: ModelParallel | None = None
    """Settings of model parallelism."""
    pipeline_parallel: PipelineParallel | None = None
    """Settings of pipeline parallelism."""
    data_parallel_size: int | None = Field(default=None, gt=0)
    """Data parallel degree."""
    tensor_parallel_size: int | None = Field(default=None, gt=0)
    """Tensor parallel degree."""
    pipeline_parallel_size: int | None = Field(default=None, gt=0)
    """Pipeline parallel degree."""
    zero_stage: int | None = Field(default=None, ge=0, le=3)
    """ZeRO stage."""


class GpuRequest(Section):
    """GPUs a node of the job uses."""

    count: int | None = Field(default=None, ge=0, le=1024)
    """How many; all of the environment's by default."""
    memory: Bytes | None = None
    """Least memory of each."""
    type: str | None = None
    """Model name."""


class CpuRequest(Section):
    """CPUs a node of the job uses."""

    cores: int | None = Field(default=None, ge=1)
    """Least logical CPUs."""
    memory: Bytes | None = None
    """Least host memory."""


class Storage(Section):
    """A place for data."""

    path: Text | None = None
    """Directory."""
    size: Bytes | None = None
    """Least free room."""
    type: str | None = None
    """`nfs`, `ssd`, …"""


class StorageRequest(Section):
    """Places for data."""

    local: Storage | None = None
    """On each host."""
    shared: Storage | None = None
    """Seen by all hosts."""


class NetworkRequest(Section):
    """The network between nodes, as declared."""

    bandwidth: BitsPerSecond | None = None
    """Bandwidth of a link."""
    latency: Nanoseconds | None = None
    """Latency of a link."""
    interface: str | None = Field(default=None, pattern=INTERFACE_NAME)
    """Interface to use, instead of the one the route to the master tells."""


class NodeResources(Section):
    """What the job uses of one node."""

    gpu: GpuRequest | None = None
    """GPUs."""
    cpu: CpuRequest | None = None
    """CPUs and memory."""


class Node(Section):
    """An environment chosen for the job."""

    id: Label = Field(max_length=80)
    """Id or name of an environment of the inventory."""
    role: Literal["master", "worker", "parameter_server"] = "worker"
    """Role; without a master the first node is it."""
    resources: NodeResources | None = None
    """What the job uses of it; everything by default."""
    network: NetworkRequest | None = None
    """Its network."""


class Topology(Section):
    """How the nodes are connected."""

    type: str | None = None
    """`ring`, `fat_tree`, …"""


class Cluster(Section):
    """The nodes of the job."""

    nodes: tuple[Node, ...] = ()
    """Nodes; the master first, or marked by its role."""
    topology: Topology | None = None
    """How they are connected."""

    @model_validator(mode="after")
    def _consistent(self) -> Cluster:
        faults: list[tuple[PathKey, str]] = []
        seen: set[str] = set()
        master: str | None = None
        for index, node in enumerate(self.nodes):
            if node.id in seen:
                faults.append((("nodes", index, "id"), _('node "{node}" is listed twice').format(node=node.id)))
            seen.add(node.id)
            if node.role == "master" and master is not None:
                message = _('"{first}" is the master already; one node can be it').format(first=master)
                faults.append((("nodes", index, "role"), message))
            elif node.role == "master":
                master = node.id
        if faults:
            raise PlacedValueError(*faults)
        return self

    @property
    def master(self) -> Node | None:
        """The node with `role: master`, else the first; `None` without nodes."""
        marked = next((node for node in self.nodes if node.role == "master"), None)
        return marked or (self.nodes[0] if self.nodes else None)


class AllReduce(Section):
    """Settings of all-reduce."""

    algorithm: Literal["ring", "tree", "butterfly"] | None = None
    """Algorithm."""
    buffer_size: int | None = Field(default=None, gt=0)
    """Bytes a bucket."""


class Broadcast(Section):
    """Settings of broadcast."""

    algorithm: Literal["tree", "linear"] | None = None
    """Algorithm."""


class Gather(Section):
    """Settings of gather."""

    algorithm: Literal["linear", "tree"] | None = None
    """Algorithm."""


class CollectiveOps(Section):
    """Settings of collective operations, another place for the three below."""

    allreduce: AllReduce | None = None
    """All-reduce."""
    broadcast: Broadcast | None = None
    """Broadcast."""
    gather: Gather | None = None
    """Gather."""


class Communication(Section):
    """How ranks talk."""

    protocol: Literal["NCCL", "MPI", "gRPC", "custom"] | None = None
    """Protocol; NCCL where every slot is a CUDA GPU, else gloo."""
    collective_ops: CollectiveOps | None = None
    """Collective operations."""
    allreduce: AllReduce | None = None
    """All-reduce."""
    broadcast: Broadcast | None = None
    """Broadcast."""
    gather: Gather | None = None
    """Gather."""


class ResourceDefaults(Section):
    """Defaults for every node."""

    cpu: CpuRequest | None = None
    """CPUs and memory."""
    gpu: GpuRequest | None = None
    """GPUs."""
    storage: StorageRequest | None = None
    """Places for data."""
    network: NetworkRequest | None = None
    """Network."""


class Logging(Section):
    """The script's logging; passed to it."""

    level: Literal["INFO", "DEBUG", "WARN"] = "INFO"
    """Least level."""
    format: Literal["json", "text"] = "text"
    """Line format."""


def _finite(value: dict[str, Any]) -> dict[str, Any]:
    faults = [(path, _("expected a number that JSON can hold")) for path in _infinite_paths(value, ())]
    if faults:
        raise PlacedValueError(*faults)
    return value


def _infinite_paths(value: Any, path: PathKey) -> Iterator[PathKey]:
    if isinstance(value, float) and not math.isfinite(value):
        yield path
    elif isinstance(value, (dict, list, tuple)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _infinite_paths(item, (*path, key))


class Visualization(Section):
    """Dashboards; passed to the script."""

    enabled: bool = False
    """Whether it is on."""
    dashboard: Annotated[dict[str, Any], AfterValidator(_finite)] | None = None
    """Its settings."""


class Monitoring(Section):
    """What is watched."""

    metrics: tuple[str, ...] = ()
    """Names of metrics; an open list."""
    logging: Logging | None = None
    """Logging."""
    visualization: Visualization | None = None
    """Dashboards."""


class Run(Section):
    """What runs on every rank: a script, a module or a command.

    Arguments and values of `env` may use `${JOB_ID}`, `${ATTEMPT}`, `${DIRECTORY}` (the attempt's own on the host),
    `${MASTER_PORT}` and `${PYTHON}`; they are filled in at the start.
    """

    script: ProgramPath | None = None
    """Python file, relative to `workdir`; without one, to the directory of the job file, which is then sent."""
    module: str | None = Field(default=None, pattern=MODULE_NAME)
    """Python module, as `python -m` takes it."""
    command: tuple[Text, ...] | None = Field(default=None, min_length=1)
    """Command and arguments; framework `command` only."""
    args: tuple[Text, ...] = ()
    """Arguments of the script or module."""
    workdir: Text | None = None
    """Working directory. Absolute: it is there on every host. Relative: it lies beside the job file and is sent."""
    python: Text | None = None
    """Interpreter; the environment's own by default."""
    env: dict[Annotated[str, Field(pattern=ENV_NAME)], Text] = Field(default_factory=dict)
    """Environment variables."""
    secrets: tuple[Annotated[str, Field(pattern=ENV_NAME)], ...] = ()
    """Names of variables whose values come from dttui's own environment; never written down."""
    prefix: tuple[Text, ...] = ()
    """Put before the command, such as `numactl --localalloc`."""

    @model_validator(mode="after")
    def _one_of(self) -> Run:
        given = [name for name in ("script", "module", "command") if getattr(self, name) is not None]
        if len(given) != 1:
            message = _("give exactly one of script, module and command")
            raise ValueError(message + (_(", not {keys}").format(keys=_(" and ").join(given)) if given else ""))
        if self.command is not None and self.args:
            raise PlacedValueError((("args",), _("args belong to script and module; write them into command")))
        return self


class Model(Section):
    """The model, for estimates."""

    name: str | None = None
    """Name."""
    parameters: Number | None = Field(default=None, gt=0)
    """Parameters, 7e9."""
    layers: int | None = Field(default=None, gt=0)
    """Transformer layers."""
    hidden_size: int | None = Field(default=None, gt=0)
    """Hidden size."""
    heads: int | None = Field(default=None, gt=0)
    """Attention heads."""
    seq_length: int | None = Field(default=None, gt=0)
    """Tokens a sample."""
    vocab_size: int | None = Field(default=None, gt=0)
    """Vocabulary."""
    precision: Literal["fp32", "tf32", "fp16", "bf16", "fp8"] | None = None
    """Training precision."""


class DatasetRef(Section):
    """A dataset of the inventory's catalogue."""

    id: Label
    """Dataset id."""
    version: str | None = None
    """Version id; the first by default."""
    path: Text | None = None
    """Path on the hosts, instead of the catalogue's."""


def _kind_of_dataset(value: Any) -> str:
    return "no dataset" if isinstance(value, str) else "a dataset"


DatasetChoice = Annotated[
    Annotated[DatasetRef, Tag("a dataset")] | Annotated[Literal["none"], Tag("no dataset")],
    Discriminator(_kind_of_dataset),
]
"""A dataset, or an explicit none; told apart first, so that a mistake in one is not reported for both."""


class Checkpoint(Section):
    """Where checkpoints go."""

    dir: Text
    """Directory on the hosts; relative to the working directory there. Made before the script runs."""
    shared: bool = False
    """Whether all hosts see the same directory."""
    resume_args: tuple[Text, ...] = ()
    """Arguments added when an attempt resumes."""


class Recovery(Section):
    """What happens after a failure."""

    max_restarts: int = Field(default=0, ge=0)
    """New attempts after the first."""
    on_node_failure: Literal["stop", "restart", "replace", "continue"] = "stop"
    """What to do when a node fails."""
    spares: tuple[str, ...] = ()
    """Environments that may replace a failed one."""
    min_nodes: int | None = Field(default=None, gt=0)
    """Fewest nodes to go on with."""
    heartbeat_s: Number = Field(default=30.0, gt=0)
    """Silence after which a node is unknown."""
    self_fence_s: Number | None = Field(default=None, gt=0)
    """Silence after which a supervisor ends its ranks; off by default."""
    checkpoint: Checkpoint | None = None
    """Checkpoints."""


class Job(Section):
    """One distributed training job."""

    name: Label = Field(max_length=120)
    """Name of the job."""
    version: str = "1.0.0"
    """Version of the document, the person's own."""
    framework: FrameworkName | None = None
    """How it is launched."""
    run: Run | None = None
    """What runs."""
    dataset: DatasetChoice | None = None
    """Dataset of the catalogue, or an explicit `none`."""
    strategy: Strategy = Strategy()
    """How it is made parallel."""
    cluster: Cluster = Cluster()
    """Nodes."""
    communication: Communication = Communication()
    """How ranks talk."""
    resources: ResourceDefaults = ResourceDefaults()
    """Defaults for every node."""
    monitoring: Monitoring = Monitoring()
    """What is watched."""
    model: Model | None = None
    """The model, for estimates."""
    recovery: Recovery = Recovery()
    """What happens after a failure."""


class JobDocument(Section):
    """A job file: one job under its key."""

    distributed_training: Job
    """The job."""
