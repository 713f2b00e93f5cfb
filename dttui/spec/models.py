"""job.yaml as models: the seed DSL's sections and dttui's additions, all to be had from here."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from dttui.i18n import _
from dttui.spec.checkpoint import Checkpoint
from dttui.spec.cluster import (
    Cluster,
    CpuRequest,
    GpuRequest,
    GroupLink,
    NetworkRequest,
    Node,
    NodeGroup,
    NodeResources,
    ResourceDefaults,
    Storage,
    StorageRequest,
    Topology,
)
from dttui.spec.communication import (
    AllGather,
    AllReduce,
    Broadcast,
    CollectiveOps,
    Communication,
    Gather,
    ReduceScatter,
    ReductionName,
)
from dttui.spec.container import Container
from dttui.spec.effects import FOR_SCRIPT, LAUNCHED
from dttui.spec.entry_points import OWN_FRAMEWORKS, is_megatron_with_deepspeed, plugin_frameworks
from dttui.spec.failure_causes import KIND_OF_CAUSE, CauseKind
from dttui.spec.free_values import FreeValues
from dttui.spec.lora import Lora
from dttui.spec.monitoring import Alert, Logging, Monitoring, ToldKind, Visualization
from dttui.spec.problems import PlacedValueError, check_exactly_one, did_you_mean, with_hint
from dttui.spec.quantities import Number, Parameters
from dttui.spec.section import MOST_COUNT, MOST_LAYERS, MOST_PARAMETERS, Section
from dttui.spec.strategy import DataParallel, DataSharding, ModelParallel, ModelSplitting, PipelineParallel, Strategy
from dttui.spec.text import ENV_NAME, MODULE_NAME, Label, ProgramPath, Text

__all__ = [
    "MOST_COUNT",
    "MOST_LAYERS",
    "MOST_PARAMETERS",
    "Alert",
    "AllGather",
    "AllReduce",
    "Broadcast",
    "Checkpoint",
    "Cluster",
    "CollectiveOps",
    "Communication",
    "Container",
    "CpuRequest",
    "DataParallel",
    "DataSharding",
    "DatasetChoice",
    "DatasetRef",
    "FrameworkName",
    "Gather",
    "GpuRequest",
    "GroupLink",
    "Job",
    "JobDocument",
    "Logging",
    "Lora",
    "Model",
    "ModelParallel",
    "ModelSplitting",
    "Monitoring",
    "NetworkRequest",
    "Node",
    "NodeGroup",
    "NodeResources",
    "PipelineParallel",
    "Recovery",
    "RecoveryAction",
    "ReduceScatter",
    "ReductionName",
    "ResourceDefaults",
    "Run",
    "Section",
    "Storage",
    "StorageRequest",
    "Strategy",
    "ToldKind",
    "Topology",
    "Visualization",
]


def _of_others_too(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    try:
        return check(value)
    except ValidationError:
        if isinstance(value, str) and value in plugin_frameworks():
            return value
        if isinstance(value, str) and is_megatron_with_deepspeed(value):
            raise ValueError(with_hint(*megatron_with_deepspeed())) from None
        raise


def megatron_with_deepspeed() -> tuple[str, str]:
    """Return why there is no framework of that name, and which does what the two do together."""
    return (
        _("Megatron-LM + DeepSpeed is no framework of its own here"),
        _(
            "Write framework: megatron-lm, which splits tensors and layers (tensor_parallel_size, "
            "pipeline_parallel_size), with strategy.zero_stage: 1 for ZeRO's sharded optimizer; or deepspeed for its "
            "stages 2 and 3 and for offloading"
        ),
    )


if TYPE_CHECKING:
    FrameworkName: TypeAlias = str
else:
    FrameworkName = Annotated[Literal[tuple(OWN_FRAMEWORKS)], WrapValidator(_of_others_too)]
    """A framework that comes with dttui, or one that an installed package adds."""


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
    """Environment variables of all ranks."""
    secrets: tuple[Annotated[str, Field(pattern=ENV_NAME)], ...] = ()
    """Names of variables whose values come from dttui's own environment; never written down."""
    prefix: tuple[Text, ...] = ()
    """Put before the command, such as `numactl --localalloc`."""
    per: Literal["gpu", "node"] = "gpu"
    """How often a command is started; framework `command` only. `node`: once, for what starts its own ranks."""
    warm_start: bool = Field(default=False, json_schema_extra=LAUNCHED)
    """Fork torchrun and the ranks from a process on each host that keeps torch imported; it stays for later jobs."""
    container: Container | None = None
    """The image that all processes run in; without it they run on the host itself."""

    @model_validator(mode="after")
    def _one_of(self) -> Run:
        message = _("give exactly one of script, module and command")
        check_exactly_one(self, ("script", "module", "command"), message)
        if self.command is not None and self.args:
            raise PlacedValueError((("args",), _("args belong to script and module; write them into command")))
        return self


class LatentAttention(Section):
    """Sizes of attention by compressed keys and values (MLA; DeepSeek-AI 2024, section 2.1)."""

    q_rank: int | None = Field(default=None, gt=0, le=MOST_COUNT)
    """Width that queries are compressed to; without it they are not."""
    kv_rank: int = Field(gt=0, le=MOST_COUNT)
    """Width that keys and values are compressed to."""
    head_size: int = Field(gt=0, le=MOST_COUNT)
    """Width of a head of queries and keys without positions."""
    rope_size: int = Field(gt=0, le=MOST_COUNT)
    """Width of what has positions beside that."""
    value_size: int = Field(gt=0, le=MOST_COUNT)
    """Width of a head of values."""

    def weights(self, hidden_size: int, heads: int) -> float:
        """Return the weights of the products of one layer's attention; all heads share the keys that have positions."""
        query_size = heads * (self.head_size + self.rope_size)
        queries = self.q_rank * (hidden_size + query_size) if self.q_rank is not None else hidden_size * query_size
        compressed = hidden_size * (self.kv_rank + self.rope_size)
        keys_and_values = self.kv_rank * heads * (self.head_size + self.value_size)
        return queries + compressed + keys_and_values + heads * self.value_size * hidden_size


class Model(Section):
    """The model, for estimates."""

    name: str | None = None
    """Name; of a known model, llama-3-8b, it stands for the sizes."""
    config: Text | None = None
    """A config.json of Hugging Face's, whose sizes it has."""
    parameters: Parameters | None = None
    """Parameters, 7e9 or 7B."""
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
    kv_heads: int | None = Field(default=None, gt=0, le=MOST_COUNT)
    """Heads of keys and values; as many as attention heads by default."""
    head_size: int | None = Field(default=None, gt=0, le=MOST_COUNT)
    """Width of a head; hidden size by heads by default."""
    ffn_size: int | None = Field(default=None, gt=0, le=MOST_COUNT)
    """Width of the feed-forward part."""
    gated: bool | None = None
    """Whether that is gated (SwiGLU)."""
    tied: bool | None = None
    """Whether the output layer is the token embedding; so by default."""
    attention: Literal["flash", "plain"] | None = None
    """Whether attention keeps its s² matrix (plain); flash by default."""
    causal: bool | None = None
    """Whether tokens attend to those before them alone; so by default."""
    dropout: bool | None = None
    """Whether there is dropout; none by default."""
    experts: int | None = Field(default=None, gt=0, le=MOST_COUNT)
    """Experts of a layer."""
    experts_per_token: int | None = Field(default=None, gt=0, le=MOST_COUNT)
    """Experts a token goes through; 2 by default."""
    expert_size: int | None = Field(default=None, gt=0, le=MOST_COUNT)
    """Width of an expert; ffn_size by default."""
    shared_experts: int | None = Field(default=None, ge=0, le=MOST_COUNT)
    """Experts that all tokens go through."""
    dense_layers: int | None = Field(default=None, ge=0, le=MOST_LAYERS)
    """First layers without experts."""
    latent: LatentAttention | None = None
    """Attention by compressed keys and values (MLA)."""
    lora: Lora | None = None
    """Adapters that are trained in the place of the weights (LoRA, QLoRA)."""
    precision: Literal["fp32", "tf32", "fp16", "bf16", "fp8"] | None = None
    """Training precision."""
    optimizer: Literal["adam", "adam-fused", "adam-8bit", "momentum", "sgd"] | None = None
    """Optimizer, by what it keeps of each parameter: two moments (adam), both in 8 bits, one (momentum), none (sgd)."""
    weights: Literal["master", "autocast", "pure"] | None = None
    """In half precision: with a copy in fp32 (master), in fp32 alone and cast (autocast), or without fp32 (pure)."""
    fused: bool | None = None
    """Whether gates and loss are fused kernels, of Megatron-LM, torch.compile or Liger."""


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


MOST_RESTARTS = 3
"""In a row and in vain, where a job that is to be started again does not say how many."""
MOST_ATTEMPTS = 10_000


class RecoveryAction(str, Enum):
    """What is done about a failure; see `Recovery.on_node_failure`."""

    STOP = "stop"
    RESTART = "restart"
    REPLACE = "replace"
    CONTINUE = "continue"


def _known_cause(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    try:
        return check(value)
    except ValidationError as error:
        message = _("expected a cause that `dttui diagnose` tells, or a kind of causes: {kinds}").format(
            kinds=", ".join(_KINDS)
        )
        near = did_you_mean(value, _CAUSES) if isinstance(value, str) else ""
        raise ValueError(with_hint(message, near)) from error


def _kind_of_reason(value: Any) -> str:
    return "an exit code" if isinstance(value, int) and not isinstance(value, bool) else "a cause"


_KINDS = tuple(kind.value for kind in CauseKind)
_CAUSES = (*_KINDS, *KIND_OF_CAUSE)
if TYPE_CHECKING:
    CauseName: TypeAlias = str
else:
    CauseName = Annotated[Literal[_CAUSES], WrapValidator(_known_cause)]
    """Code of a cause, or a kind of causes."""
Reason = Annotated[
    Annotated[CauseName, Tag("a cause")] | Annotated[int, Field(ge=1, le=255), Tag("an exit code")],
    Discriminator(_kind_of_reason),
]
"""Why an attempt failed: by its cause, or by what a process exited with."""


class Recovery(Section):
    """What happens after a failure: whether another attempt begins, where, and from what."""

    max_restarts: int = Field(default=MOST_RESTARTS, ge=0, le=MOST_ATTEMPTS, json_schema_extra=LAUNCHED)
    """Attempts after the first that may follow each other without a step that none before has made. Written without
    on_node_failure, it stands for `restart`."""
    on_node_failure: Literal["stop", "restart", "replace", "continue"] = Field(
        default="stop", json_schema_extra=LAUNCHED
    )
    """What to do when a node or a rank fails: `stop`, the job fails; `restart`, all ranks begin again on the same
    nodes; `replace`, and a spare takes the place of a node that is lost; `continue`, torchrun goes on without it."""
    spares: tuple[Label, ...] = Field(default=(), json_schema_extra=LAUNCHED)
    """Environments, by id or name, that may take a node's place; the first one that is free does."""
    min_nodes: int | None = Field(default=None, gt=0, json_schema_extra=LAUNCHED)
    """Fewest nodes to go on with where one is lost and no spare is left; all of them by default."""
    retry_on: tuple[Reason, ...] = Field(default=(), json_schema_extra=LAUNCHED)
    """Causes, kinds of causes and exit codes that are tried again, whatever they are."""
    no_retry_on: tuple[Reason, ...] = Field(default=(), json_schema_extra=LAUNCHED)
    """Such that are not; it counts before retry_on."""
    heartbeat_s: Number = Field(default=30.0, gt=0, json_schema_extra=LAUNCHED)
    """Silence after which a node is unknown, 3 s at least; where another attempt may follow, and nothing speaks for its
    being alive, it is lost."""
    self_fence_s: Number | None = Field(default=None, gt=0, json_schema_extra=LAUNCHED)
    """Silence of the login node after which a host ends its ranks by itself, `heartbeat_s` at least; off by default.
    Another attempt elsewhere begins only after that."""
    hang_s: Number | None = Field(default=None, gt=0, json_schema_extra=LAUNCHED)
    """Once a step was made: seconds, 5 at least, without a new step and without a line of any rank after which the job
    hangs; off by default."""
    hang_first_s: Number | None = Field(default=None, gt=0, json_schema_extra=LAUNCHED)
    """The same before the first step, from when all ranks run: time in which scripts load, compile and say nothing."""
    on_hang: Literal["report", "restart"] = Field(default="report", json_schema_extra=LAUNCHED)
    """What to do then: `report` where each rank stands; or besides end the attempt, which is a failure like others, so
    that another one may follow. While all its GPUs compute it is not ended."""
    straggler_s: Number | None = Field(default=None, gt=0, json_schema_extra=LAUNCHED)
    """So long the ranks have to wait for one of them, a tenth of their time or more, or a GPU has to be slower than its
    like, before it is named (8 at least); off by default. Where ranks cannot be asked for that, by the steps that each
    reports."""
    on_straggler: Literal["report", "replace"] = Field(default="report", json_schema_extra=LAUNCHED)
    """What to do then: only to tell it; or to have one of `spares` take the place of its host, once a checkpoint is
    complete that was written since. That wants `on_node_failure: replace`."""
    checkpoint: Checkpoint | None = None
    """Checkpoints."""

    @property
    def action(self) -> RecoveryAction:
        """What is done: as written, and `restart` where all that is said is how often."""
        if "max_restarts" in self.model_fields_set and "on_node_failure" not in self.model_fields_set:
            return RecoveryAction.RESTART if self.max_restarts else RecoveryAction.STOP
        return RecoveryAction(self.on_node_failure)


class Job(Section):
    """One distributed training job."""

    name: Label = Field(max_length=120)
    """Name of the job."""
    version: str = Field(default="1.0.0", json_schema_extra=FOR_SCRIPT)
    """Version of the document, the person's own."""
    framework: FrameworkName | None = None
    """How it is launched."""
    framework_options: FreeValues = Field(default_factory=dict, json_schema_extra=LAUNCHED)
    """What the framework itself can be told; which keys there are is the framework's affair."""
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
    require_process_group: Literal["auto", True, False] = Field(default="auto", json_schema_extra=LAUNCHED)
    """Whether all ranks must form one process group: `true` ends a job whose ranks do not, `auto` tells of it, and
    `false` is for ranks that train apart."""
    recovery: Recovery = Recovery()
    """What happens after a failure."""

    @model_validator(mode="after")
    def _agree(self) -> Job:
        here, gpu = self.cluster.gpus_per_node, self.resources.gpu
        if here is not None and gpu is not None and gpu.number not in (None, here):
            message = _("this is not what {other} says; give it once").format(other="resources.gpu.count")
            raise PlacedValueError((("cluster", "gpus_per_node"), message))
        return self


class JobDocument(Section):
    """A job file of dttui: one distributed training job."""

    schema_version: Literal["dttui/v1"] = Field(default="dttui/v1", alias="schema")
    """Version of this schema that the file is written in; without it, the first, `dttui/v1`."""
    distributed_training: Job
    """The job."""
