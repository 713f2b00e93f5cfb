"""job.yaml as models: the seed DSL's sections and dttui's additions. Frozen; an unknown key is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from dttui.i18n import _
from dttui.spec.conditions import parse_metric, parse_pattern, parse_state
from dttui.spec.effects import ESTIMATED, FOR_SCRIPT, LAUNCHED, UNUSED, VERIFIED
from dttui.spec.free_values import FreeValues
from dttui.spec.problems import PathKey, PlacedValueError, did_you_mean, with_hint
from dttui.spec.text import DURATION, ENV_NAME, INTERFACE_NAME, MODULE_NAME, Label, ProgramPath, Text
from dttui.spec.units import BitsPerSecond, Bytes, Nanoseconds, Number

MOST_PARAMETERS = 1e18
MOST_LAYERS = 10_000
MOST_COUNT = 10**9
"""Bounds of what an estimate is made of: far above all models there are, and small enough to be searched."""

FrameworkName = Literal["pytorch-ddp", "pytorch-fsdp", "deepspeed", "horovod", "megatron-lm", "tensorflow", "command"]


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class DataSharding(Section):
    """How data is shared out among the ranks: the script finds it in the file that DTTUI_CONFIG names."""

    method: str | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """`random`, `sequential`, …"""
    strategy: str | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """Another spelling of `method`."""
    seed: int | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """Seed of the shuffle."""
    drop_last: bool | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """Drop the last incomplete batch."""


class DataParallel(Section):
    """Settings of data parallelism."""

    batch_size: int | None = Field(default=None, gt=0, le=MOST_COUNT)
    """Global batch size, shared out among all ranks."""
    num_workers: int | None = Field(default=None, ge=0)
    """Loader processes a rank."""
    data_sharding: DataSharding | None = None
    """How data is shared out."""


class ModelSplitting(Section):
    """How a model is cut: the script finds it in the file that DTTUI_CONFIG names, and cuts the model itself."""

    method: str | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """`layer_wise`, …"""
    layers_per_node: int | None = Field(default=None, gt=0, json_schema_extra=FOR_SCRIPT)
    """Layers on each node."""


class ModelParallel(Section):
    """Settings of model parallelism."""

    model_splitting: ModelSplitting | None = None
    """How the model is cut."""
    pipeline_stages: int | None = Field(default=None, gt=0)
    """Pipeline stages."""


class PipelineParallel(Section):
    """Settings of pipeline parallelism."""

    micro_batch_size: int | None = Field(default=None, gt=0, le=MOST_COUNT)
    """Samples a micro-batch."""
    pipeline_stages: int | None = Field(default=None, gt=0)
    """Pipeline stages."""
    schedule: Literal["1F1B", "GPipe", "Interleaved"] | None = None
    """Order of forward and backward passes."""
    virtual_stages: int | None = Field(default=None, ge=1, json_schema_extra=ESTIMATED)
    """Chunks of layers on each rank, for the schedule Interleaved; the script finds it in the file of DTTUI_CONFIG."""


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
    sequence_parallel: bool | None = Field(default=None, json_schema_extra=ESTIMATED)
    """Whether tensor parallel ranks also share out what lies between their layers, along the sequence.

    The script finds it in the file that DTTUI_CONFIG names.
    """
    recomputation: Literal["none", "selective", "full"] | None = Field(default=None, json_schema_extra=ESTIMATED)
    """Which activations are computed again in the backward pass instead of kept: those of attention, or all.

    The script finds it in the file that DTTUI_CONFIG names.
    """


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
    """A place for data: a path that is absolute must be there on every host; the rest has no effect yet."""

    path: Text | None = Field(default=None, json_schema_extra=VERIFIED)
    """Directory; where it is absolute, the preflight looks whether it is there on every host."""
    size: Bytes | None = Field(default=None, json_schema_extra=UNUSED)
    """Least free room; no effect yet."""
    type: str | None = Field(default=None, json_schema_extra=UNUSED)
    """`nfs`, `ssd`, …; no effect yet."""


class StorageRequest(Section):
    """Places for data."""

    local: Storage | None = None
    """On each host."""
    shared: Storage | None = None
    """Seen by all hosts."""


class NetworkRequest(Section):
    """The network between nodes, as declared: the estimate counts with it, and ranks talk by its interface."""

    bandwidth: BitsPerSecond | None = Field(default=None, json_schema_extra=ESTIMATED)
    """Bandwidth of a node's link, for the estimate."""
    latency: Nanoseconds | None = Field(default=None, json_schema_extra=ESTIMATED)
    """Latency of a link, for the estimate."""
    interface: str | None = Field(default=None, pattern=INTERFACE_NAME, json_schema_extra=LAUNCHED)
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


class NodeGroup(Section):
    """Nodes that are nearer to each other than to all others: a rack, a switch, a room."""

    name: Label = Field(max_length=80, json_schema_extra=UNUSED)
    """Name."""
    nodes: tuple[Label, ...] = Field(min_length=1, json_schema_extra=UNUSED)
    """Ids of nodes of the job."""


class GroupLink(Section):
    """What the network carries between groups, a node."""

    bandwidth: BitsPerSecond | None = Field(default=None, json_schema_extra=UNUSED)
    """Bandwidth."""
    latency: Nanoseconds | None = Field(default=None, json_schema_extra=UNUSED)
    """Latency."""


class Topology(Section):
    """How the nodes are connected; checked, and of no effect yet: what a node's own link carries is said by `network`.

    Zones need not be written here: the inventory has them.
    """

    type: str | None = Field(default=None, json_schema_extra=UNUSED)
    """`ring`, `fat_tree`, …; no effect yet."""
    groups: tuple[NodeGroup, ...] = Field(default=(), json_schema_extra=UNUSED)
    """Which nodes are near to each other; no effect yet."""
    between_groups: GroupLink | None = Field(default=None, json_schema_extra=UNUSED)
    """What the network carries from one group to another; no effect yet."""


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
        faults += self._misgrouped(seen)
        if faults:
            raise PlacedValueError(*faults)
        return self

    def _misgrouped(self, nodes: set[str]) -> Iterator[tuple[PathKey, str]]:
        """Yield where a group holds what is no node, or a node that another holds already."""
        grouped: dict[str, str] = {}
        for index, group in enumerate(self.topology.groups if self.topology is not None else ()):
            for place, node in enumerate(group.nodes):
                path = ("topology", "groups", index, "nodes", place)
                if node not in nodes:
                    message = _('"{node}" is no node of the job').format(node=node)
                    near = did_you_mean(node, nodes)
                    yield path, with_hint(message, near)
                elif node in grouped:
                    yield (
                        path,
                        _('node "{node}" is in the group "{group}" already').format(node=node, group=grouped[node]),
                    )
                grouped.setdefault(node, group.name)

    @property
    def master(self) -> Node | None:
        """The node with `role: master`, else the first; `None` without nodes."""
        marked = next((node for node in self.nodes if node.role == "master"), None)
        return marked or (self.nodes[0] if self.nodes else None)


ReductionName = Literal["sum", "mean", "max", "min"]


class AllReduce(Section):
    """Settings of all-reduce."""

    algorithm: Literal["ring", "tree", "butterfly"] | None = None
    """Algorithm."""
    buffer_size: int | None = Field(default=None, gt=0)
    """Bytes a bucket."""
    op: ReductionName | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """What becomes of the ranks' values; `sum` where nothing is said."""


class Broadcast(Section):
    """Settings of broadcast."""

    algorithm: Literal["tree", "linear"] | None = None
    """Algorithm."""


class Gather(Section):
    """Settings of gather."""

    algorithm: Literal["linear", "tree"] | None = None
    """Algorithm."""


class AllGather(Section):
    """Settings of all-gather."""

    algorithm: Literal["ring", "tree", "linear"] | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """Algorithm."""


class ReduceScatter(Section):
    """Settings of reduce-scatter."""

    algorithm: Literal["ring", "tree", "butterfly"] | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """Algorithm."""
    op: ReductionName | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """What becomes of the ranks' values; `sum` where nothing is said."""


class CollectiveOps(Section):
    """Settings of collective operations: another place for `allreduce`, `broadcast` and `gather` of `communication`.

    The script finds them in the file that DTTUI_CONFIG names. What stands in both places must be the same.
    """

    allreduce: AllReduce | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """All-reduce."""
    broadcast: Broadcast | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """Broadcast."""
    gather: Gather | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """Gather."""
    allgather: AllGather | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """All-gather."""
    reduce_scatter: ReduceScatter | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """Reduce-scatter."""


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

    @property
    def all_reduce(self) -> AllReduce | None:
        """What is said of all-reduce, in whichever place."""
        return self.allreduce or (self.collective_ops.allreduce if self.collective_ops is not None else None)

    @model_validator(mode="after")
    def _agree(self) -> Communication:
        other = self.collective_ops or CollectiveOps()
        faults: list[tuple[PathKey, str]] = []
        for name in CollectiveOps.model_fields.keys() & Communication.model_fields.keys():
            here, there = getattr(self, name), getattr(other, name)
            if here is not None and there is not None and here != there:
                message = _("this is not what {other} says; give it once").format(other=f"collective_ops.{name}")
                faults.append(((name,), message))
        if faults:
            raise PlacedValueError(*faults)
        return self


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


class Visualization(Section):
    """Dashboards of the script's own: it finds this in the file that DTTUI_CONFIG names."""

    enabled: bool = Field(default=False, json_schema_extra=FOR_SCRIPT)
    """Whether it is on."""
    dashboard: FreeValues | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """Its settings, any keys and values."""


def _condition(parse: Callable[[str], object]) -> AfterValidator:
    """Return the check that text can be parsed; it stays as it was written."""

    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


class Alert(Section):
    """What raises an alert: exactly one of `log`, `metric` and `state`."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
                for name in ("log", "metric", "state")
            ]
        }
    )

    name: Annotated[Label, Field(max_length=80)] | None = None
    """What it is called; by default what it waits for."""
    log: Annotated[str, _condition(parse_pattern)] | None = None
    """Regular expression of Python's, looked for in each line of the ranks' output; of a line the first 4 KB count."""
    metric: Annotated[str, _condition(parse_metric)] | None = None
    """`loss > 10`, `gpu.temperature > 85`, `gpu.utilization < 5 for 10m`: what ranks report, `gpu.…` or `host.…`."""
    state: Annotated[str, _condition(parse_state)] | None = None
    """`node unknown for 2m`, `rank failed`, `job failed`."""
    every: Annotated[str, Field(pattern=DURATION)] = "5m"
    """Of the same rank, GPU or host it is raised at most once in so long, `30s`, `5m`, `2h`; and of all, five times."""

    @model_validator(mode="after")
    def _one_of(self) -> Alert:
        given = [name for name in ("log", "metric", "state") if getattr(self, name) is not None]
        if len(given) != 1:
            message = _("give exactly one of log, metric and state")
            raise ValueError(message + (_(", not {keys}").format(keys=_(" and ").join(given)) if given else ""))
        return self


ToldKind = Literal["alert", "metric_alert", "job_state", "node_state", "rank_failed", "finding", "progress", "outcome"]


class Monitoring(Section):
    """What is watched."""

    metrics: tuple[str, ...] = ()
    """Names of metrics; an open list."""
    alerts: tuple[Alert, ...] = Field(default=(), max_length=32)
    """What to raise an alert about while the job runs."""
    on_event: tuple[Text, ...] | None = Field(default=None, min_length=1)
    """Program and arguments, run on the login node for each event, which is JSON on its standard input; no shell."""
    on_event_kinds: tuple[ToldKind, ...] = ("alert", "metric_alert", "rank_failed", "outcome")
    """Events that it is run for."""
    logging: Logging | None = None
    """Logging."""
    visualization: Visualization | None = None
    """Dashboards."""


class Run(Section):
    """What runs on every rank: a script, a module or a command.

    Arguments and values of `env` may use `${JOB_ID}`, `${ATTEMPT}`, `${DIRECTORY}` (the attempt's own on the host),
    `${MASTER_PORT}` and `${PYTHON}`; they are filled in at the start.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
                for name in ("script", "module", "command")
            ]
        }
    )

    script: ProgramPath | None = None
    """Python file, relative to `workdir`; without one, to the directory of the job file, which is then sent."""
    module: str | None = Field(default=None, pattern=MODULE_NAME)
    """Python module, as `python -m` takes it."""
    command: tuple[Text, ...] | None = Field(default=None, min_length=1)
    """Command and arguments; framework `command` only."""
    workdir: Text | None = None
    """Working directory. Absolute: it is there on every host. Relative: it lies beside the job file and is sent."""
    args: tuple[Text, ...] = ()
    """Arguments of the script or module."""
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
    parameters: Number | None = Field(default=None, gt=0, le=MOST_PARAMETERS)
    """Parameters, 7e9."""
    layers: int | None = Field(default=None, gt=0, le=MOST_LAYERS)
    """Transformer layers."""
    hidden_size: int | None = Field(default=None, gt=0, le=MOST_COUNT)
    """Hidden size."""
    heads: int | None = Field(default=None, gt=0, le=MOST_COUNT)
    """Attention heads."""
    seq_length: int | None = Field(default=None, gt=0, le=MOST_COUNT)
    """Tokens a sample."""
    vocab_size: int | None = Field(default=None, gt=0, le=MOST_COUNT)
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
    shared: bool = Field(default=False, json_schema_extra=UNUSED)
    """Whether all hosts see the same directory; no effect yet."""
    resume_args: tuple[Text, ...] = Field(default=(), json_schema_extra=UNUSED)
    """Arguments added when an attempt resumes; no effect yet."""


class Recovery(Section):
    """What happens after a failure; but for the checkpoint's directory it has no effect yet: a job has one attempt."""

    max_restarts: int = Field(default=0, ge=0, json_schema_extra=UNUSED)
    """New attempts after the first."""
    on_node_failure: Literal["stop", "restart", "replace", "continue"] = Field(default="stop", json_schema_extra=UNUSED)
    """What to do when a node fails."""
    spares: tuple[str, ...] = Field(default=(), json_schema_extra=UNUSED)
    """Environments that may replace a failed one."""
    min_nodes: int | None = Field(default=None, gt=0, json_schema_extra=UNUSED)
    """Fewest nodes to go on with."""
    heartbeat_s: Number = Field(default=30.0, gt=0, json_schema_extra=UNUSED)
    """Silence after which a node is unknown."""
    self_fence_s: Number | None = Field(default=None, gt=0, json_schema_extra=UNUSED)
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
    settings: FreeValues = Field(default_factory=dict, json_schema_extra=FOR_SCRIPT)
    """The script's own: epochs, learning rate, optimizer, any keys and values.

    The script finds them in the file that DTTUI_CONFIG names.
    """
    recovery: Recovery = Recovery()
    """What happens after a failure."""


class JobDocument(Section):
    """A job file of dttui: one distributed training job."""

    schema_version: Literal["dttui/v1"] = Field(default="dttui/v1", alias="schema")
    """Version of this schema that the file is written in; without it, the first, `dttui/v1`."""
    distributed_training: Job
    """The job."""
