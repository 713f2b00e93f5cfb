"""`large_language_model_training`: a large run as it is described, by numbers of nodes and GPUs and the degrees."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from dttui.i18n import _
from dttui.spec.communication import CompressionName
from dttui.spec.dialects.recognition import LANGUAGE_MODEL
from dttui.spec.dialects.terms import ModelSize, carry_recomputation, check_product, parameter_count
from dttui.spec.dialects.translation import Translated, Translation
from dttui.spec.document import validate
from dttui.spec.models import Section
from dttui.spec.problems import PathKey
from dttui.spec.quantities import BitsPerSecond, Bytes, Number
from dttui.spec.text import Label
from dttui.spec.yaml_source import YamlSource

_DEGREES = {
    "gradient_allreduce": "data_parallel_size",
    "tensor_parallel": "tensor_parallel_size",
    "layer_pipeline": "pipeline_parallel_size",
}
_KINDS = {
    "gradient_allreduce": "data_parallel",
    "tensor_parallel": "model_parallel",
    "layer_pipeline": "pipeline_parallel",
}


class HardwareInfrastructure(Section):
    """How much hardware there is."""

    nodes: int | None = Field(default=None, gt=0)
    """How many nodes."""
    gpus_per_node: int | None = Field(default=None, gt=0, le=1024)
    """GPUs of each."""
    total_gpus: int | None = Field(default=None, gt=0)
    """GPUs in all."""
    memory_per_gpu: Bytes | None = None
    """Memory of each GPU."""
    network_bandwidth: BitsPerSecond | None = None
    """Bandwidth of a node's link."""


class ParallelStrategy(Section):
    """One way in which it is made parallel."""

    name: str | None = None
    """What a person calls it."""
    scope: str | None = None
    """Part of the model that it is about."""
    nodes: int | None = Field(default=None, gt=0)
    """Its degree."""
    strategy: Literal["gradient_allreduce", "tensor_parallel", "layer_pipeline"]
    """Which way."""


class CommunicationPattern(Section):
    """One thing that ranks say to each other."""

    name: str | None = None
    """What a person calls it."""
    pattern: Literal["AllReduce", "AllGather", "Broadcast", "Scatter", "ReduceScatter"] | None = None
    """Collective operation."""
    frequency: str | None = None
    """When."""
    compression: str | None = None
    """What it is sent as."""
    optimization: str | None = None
    """How it is made fast."""
    synchronization: str | None = None
    """Whether others wait."""


class PerformanceOptimization(Section):
    """One thing that makes steps faster or smaller."""

    name: str | None = None
    """What a person calls it."""
    precision: Literal["fp32", "tf32", "fp16", "bf16", "fp8"] | None = None
    """Training precision."""
    loss_scaling: bool | None = None
    """Whether the loss is scaled."""
    gradient_clipping: Number | None = None
    """Largest norm of the gradients."""
    accumulation_steps: int | None = Field(default=None, gt=0)
    """Micro-batches a step and rank."""
    effective_batch_size: int | None = Field(default=None, gt=0)
    """Global batch size."""
    gradient_checkpointing: bool | None = None
    """Whether activations are computed again."""
    activation_recomputation: bool | None = None
    """The same."""


class LanguageModelTraining(Section):
    """The run."""

    name: Label = Field(max_length=120)
    """Name of the job."""
    model_size: ModelSize | None = None
    """Number of parameters."""
    hardware_infrastructure: HardwareInfrastructure | None = None
    """Hardware."""
    parallelism_strategy: tuple[ParallelStrategy, ...] = ()
    """How it is made parallel."""
    communication_patterns: tuple[CommunicationPattern, ...] = ()
    """What ranks say to each other."""
    performance_optimization: tuple[PerformanceOptimization, ...] = ()
    """What makes steps faster or smaller."""


class LanguageModelDocument(Section):
    """The document."""

    large_language_model_training: LanguageModelTraining
    """The run."""


def translate(source: YamlSource) -> Translated:
    """Carry a document over. Raises DocumentError with every problem of it."""
    training = validate(source, LanguageModelDocument).large_language_model_training
    translation = Translation(source)
    root: PathKey = (LANGUAGE_MODEL,)
    translation.carry_all(
        root,
        {
            "name": "name",
            "hardware_infrastructure.nodes": "cluster.count",
            "hardware_infrastructure.gpus_per_node": "resources.gpu.count",
            "hardware_infrastructure.memory_per_gpu": "resources.gpu.memory",
            "hardware_infrastructure.network_bandwidth": "resources.network.bandwidth",
        },
    )
    if training.model_size is not None:
        size = parameter_count(training.model_size)
        translation.carry((*root, "model_size"), ("model", "parameters"), size)
    hardware = training.hardware_infrastructure or HardwareInfrastructure()
    if hardware.nodes is not None:
        translation.expect_nodes((*root, "hardware_infrastructure", "nodes"), hardware.nodes)
    _carry_degrees(translation, training, hardware)
    for index, pattern in enumerate(training.communication_patterns):
        name = (pattern.compression or "").casefold()
        if pattern.pattern == "AllReduce" and name in get_args(CompressionName):
            origin = (*root, "communication_patterns", index, "compression")
            translation.put(("communication", "compression"), name, origin)
    translation.hand_over((*root, "communication_patterns"))
    _carry_optimizations(translation, training)
    return translation.finish()


def _carry_degrees(translation: Translation, training: LanguageModelTraining, hardware: HardwareInfrastructure) -> None:
    root = (LANGUAGE_MODEL, "parallelism_strategy")
    degrees: dict[str, int] = {}
    for index, item in enumerate(training.parallelism_strategy):
        translation.use((*root, index, "name"), (*root, index, "strategy"))
        translation.hand_over((*root, index, "scope"), "scope", item.strategy)
        if item.strategy in degrees:
            message = _("not carried over: the degree of {strategy} is given before").format(strategy=item.strategy)
            translation.note((*root, index, "nodes"), message, is_warning=True)
        else:
            translation.carry((*root, index, "nodes"), ("strategy", _DEGREES[item.strategy]))
            degrees[item.strategy] = item.nodes or 1
    kinds = [_KINDS[item] for item in degrees]
    if kinds:
        translation.put(("strategy", "type"), kinds[0] if len(kinds) == 1 else "hybrid", root)
    total = (LANGUAGE_MODEL, "hardware_infrastructure", "total_gpus")
    if hardware.total_gpus is None:
        return
    translation.use(total)
    if hardware.nodes is not None and hardware.gpus_per_node is not None:
        told = f"{hardware.nodes} × {hardware.gpus_per_node}"
        check_product(translation, total, told, hardware.nodes * hardware.gpus_per_node, hardware.total_gpus)
    ways = 1
    for degree in degrees.values():
        ways *= degree
    if degrees and ways != hardware.total_gpus:
        told = " × ".join(map(str, degrees.values()))
        message = _("{told} = {ways} ways of parallelism, and the document says {total} GPUs")
        message = message.format(told=told, ways=ways, total=hardware.total_gpus)
        translation.note(root, message, _("Change the degrees in the job."), is_warning=True)


def _carry_optimizations(translation: Translation, training: LanguageModelTraining) -> None:
    root = (LANGUAGE_MODEL, "performance_optimization")
    targets = {"precision": ("model", "precision"), "effective_batch_size": ("strategy", "data_parallel", "batch_size")}
    for index in range(len(training.performance_optimization)):
        item = (*root, index)
        translation.use((*item, "name"))
        for key, target in targets.items():
            if translation.has(target) and translation.said((*item, key)) is not None:
                translation.note((*item, key), _("not carried over: this is given before"), is_warning=True)
            else:
                translation.carry((*item, key), target)
        for key in ("loss_scaling", "gradient_clipping", "accumulation_steps"):
            translation.hand_over((*item, key))
        for key in ("gradient_checkpointing", "activation_recomputation"):
            carry_recomputation(translation, (*item, key))
