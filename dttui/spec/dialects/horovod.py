"""`horovod_config`: hosts with their GPUs, and what is trained on them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dttui.i18n import _
from dttui.spec.dialects.recognition import HOROVOD
from dttui.spec.dialects.terms import Algorithm, Backend, carry_backend, carry_compression
from dttui.spec.dialects.translation import Translated, Translation
from dttui.spec.document import validate
from dttui.spec.models import Section
from dttui.spec.quantities import BitsPerSecond, Bytes, Number
from dttui.spec.text import Label
from dttui.spec.yaml_source import YamlSource

_FOR_SCRIPT = {
    "training": ("epochs", "learning_rate"),
    "optimization": ("gradient_accumulation", "gradient_clipping"),
}
"""Keys by section that dttui itself does nothing by."""


class HorovodNode(Section):
    """A host."""

    hostname: Label = Field(max_length=80)
    """Id or name of an environment."""
    gpus: int | None = Field(default=None, ge=0, le=1024)
    """GPUs to use."""
    memory: Bytes | None = None
    """Host memory."""
    network: BitsPerSecond | None = None
    """Bandwidth of its link."""


class HorovodTraining(Section):
    """What is trained."""

    model: Label | None = None
    """Model."""
    dataset: Label | None = None
    """Dataset."""
    batch_size: int | None = Field(default=None, gt=0)
    """Global batch size."""
    epochs: int | None = Field(default=None, gt=0)
    """Passes over the dataset."""
    learning_rate: Number | None = None
    """Learning rate."""


class HorovodParallelism(Section):
    """How it is made parallel."""

    strategy: Literal["data_parallel", "model_parallel", "pipeline_parallel", "hybrid"] | None = None
    """Kind of parallelism."""
    world_size: int | None = Field(default=None, gt=0)
    """Ranks in all."""
    local_rank: int | None = Field(default=None, ge=0)
    """Rank on its node of the process that reads this."""


class HorovodCommunication(Section):
    """How ranks talk."""

    backend: Backend | None = None
    """Protocol."""
    allreduce_algorithm: Algorithm | None = None
    """Algorithm of all-reduce."""
    compression: str | None = None
    """What gradients are sent as."""


class HorovodOptimization(Section):
    """How a step is made."""

    gradient_accumulation: int | None = Field(default=None, gt=0)
    """Batches a step."""
    mixed_precision: bool | None = None
    """Whether half precision is used."""
    gradient_clipping: Number | None = None
    """Largest norm of the gradients."""


class HorovodConfig(Section):
    """The configuration."""

    name: Label | None = Field(default=None, max_length=120)
    """Name of the job; the model's by default."""
    nodes: tuple[HorovodNode, ...] = ()
    """Hosts, the master first."""
    training: HorovodTraining | None = None
    """What is trained."""
    parallelism: HorovodParallelism | None = None
    """How it is made parallel."""
    communication: HorovodCommunication | None = None
    """How ranks talk."""
    optimization: HorovodOptimization | None = None
    """How a step is made."""


class HorovodDocument(Section):
    """The document."""

    horovod_config: HorovodConfig
    """The configuration."""


def translate(source: YamlSource) -> Translated:
    """Carry a document over. Raises DocumentError with every problem of it."""
    config = validate(source, HorovodDocument).horovod_config
    translation = Translation(source)
    root = (HOROVOD,)
    translation.carry_all(
        root,
        {
            "training.model": "model.name",
            "training.dataset": "dataset.id",
            "training.batch_size": "strategy.data_parallel.batch_size",
            "parallelism.strategy": "strategy.type",
            "communication.allreduce_algorithm": "communication.allreduce.algorithm",
            "name": "name",
        },
    )
    if config.name is None:
        model = config.training.model if config.training is not None else None
        translation.put(("name",), (model or "horovod")[:120], (*root, "training", "model") if model else root)
    translation.put(("framework",), "horovod", root)
    for index in range(len(config.nodes)):
        node, target = (*root, "nodes", index), ("cluster", "nodes", index)
        translation.carry((*node, "hostname"), (*target, "id"))
        translation.carry((*node, "gpus"), (*target, "resources", "gpu", "count"))
        translation.carry((*node, "memory"), (*target, "resources", "cpu", "memory"))
        translation.carry((*node, "network"), (*target, "network", "bandwidth"))
    _carry_world_size(translation, config)
    carry_backend(translation, (*root, "communication", "backend"))
    carry_compression(translation, (*root, "communication", "compression"))
    for section, keys in _FOR_SCRIPT.items():
        for key in keys:
            translation.hand_over((*root, section, key))
    local_rank = (*root, "parallelism", "local_rank")
    translation.note(local_rank, _("not carried over: every process is told its own rank"))
    precision = (*root, "optimization", "mixed_precision")
    if translation.said(precision) is False:
        translation.carry(precision, ("model", "precision"), "fp32")
    message = _("for the script alone: this does not say whether fp16 or bf16 is meant")
    if translation.said(precision) is True:
        translation.hand_over(precision)
        translation.note(precision, message, _("Write model.precision in the job."), is_warning=True)
    return translation.finish()


def _carry_world_size(translation: Translation, config: HorovodConfig) -> None:
    """Only of data parallel ranks is the world size a degree; otherwise it has to be what the nodes have."""
    origin = (HOROVOD, "parallelism", "world_size")
    parallelism = config.parallelism or HorovodParallelism()
    if parallelism.strategy in (None, "data_parallel"):
        translation.carry(origin, ("strategy", "data_parallel_size"))
        return
    translation.use(origin)
    counts = [node.gpus for node in config.nodes]
    known = [count for count in counts if count is not None]
    if parallelism.world_size is not None and len(known) == len(counts) and sum(known) != parallelism.world_size:
        message = _("the nodes have {there} GPUs, and the document says {total}")
        message = message.format(there=sum(known), total=parallelism.world_size)
        translation.note(origin, message, is_warning=True)
