"""`computer_vision_training`: a run as it is described, by the size of its data and model parallel groups."""

from __future__ import annotations

from pydantic import Field

from dttui.i18n import _
from dttui.spec.dialects.recognition import VISION
from dttui.spec.dialects.terms import Backend, carry_backend, carry_compression, check_product
from dttui.spec.dialects.translation import Translated, Translation
from dttui.spec.document import validate
from dttui.spec.models import DataSharding, Section
from dttui.spec.problems import PathKey
from dttui.spec.quantities import Number
from dttui.spec.text import Label
from dttui.spec.yaml_source import YamlSource


class GradientSynchronization(Section):
    """How gradients are summed up."""

    method: str | None = None
    """Collective operation."""
    backend: Backend | None = None
    """Protocol."""
    compression: str | None = None
    """What gradients are sent as."""


class DataParallelConfig(Section):
    """Data parallelism."""

    world_size: int | None = Field(default=None, gt=0)
    """Ranks that hold the whole model, or a group that does: the data parallel degree."""
    batch_size_per_gpu: int | None = Field(default=None, gt=0)
    """Samples a step of each of them."""
    total_batch_size: int | None = Field(default=None, gt=0)
    """Global batch size."""
    data_sharding: DataSharding | None = None
    """How data is shared out."""
    gradient_synchronization: GradientSynchronization | None = None
    """How gradients are summed up."""


class CommunicationOverlap(Section):
    """What is computed while ranks talk."""

    forward: bool | None = None
    """Whether the forward pass is."""
    backward: bool | None = None
    """Whether the backward pass is."""
    optimization: bool | None = None
    """Whether the optimizer's step is."""


class ModelParallelConfig(Section):
    """Model parallelism."""

    tensor_parallel_size: int | None = Field(default=None, gt=0)
    """Tensor parallel degree."""
    pipeline_parallel_size: int | None = Field(default=None, gt=0)
    """Pipeline parallel degree."""
    model_sharding: tuple[str, ...] | None = None
    """Parts of the model that are cut."""
    communication_overlap: CommunicationOverlap | None = None
    """What is computed while ranks talk."""


class TrainingOptimization(Section):
    """One thing about how it is trained."""

    name: str | None = None
    """What a person calls it."""
    scheduler: str | None = None
    """How the learning rate goes."""
    warmup_steps: int | None = Field(default=None, ge=0)
    """Steps until it is at its highest."""
    min_lr: Number | None = None
    """Least learning rate."""
    weight_decay: Number | None = None
    """Weight decay."""
    dropout: Number | None = None
    """Share of activations left out."""
    label_smoothing: Number | None = None
    """Label smoothing."""
    mixup: Number | None = None
    """Strength of mixing images."""
    cutmix: Number | None = None
    """Strength of cutting images into each other."""
    auto_augment: bool | None = None
    """Whether augmentations are learnt."""


class VisionTraining(Section):
    """The run."""

    name: Label = Field(max_length=120)
    """Name of the job."""
    dataset: Label | None = None
    """Dataset."""
    model: Label | None = None
    """Model."""
    data_parallel_config: DataParallelConfig | None = None
    """Data parallelism."""
    model_parallel_config: ModelParallelConfig | None = None
    """Model parallelism."""
    training_optimization: tuple[TrainingOptimization, ...] = ()
    """How it is trained."""


class VisionDocument(Section):
    """The document."""

    computer_vision_training: VisionTraining
    """The run."""


def translate(source: YamlSource) -> Translated:
    """Carry a document over. Raises DocumentError with every problem of it."""
    training = validate(source, VisionDocument).computer_vision_training
    translation = Translation(source)
    root: PathKey = (VISION,)
    data, model = (*root, "data_parallel_config"), (*root, "model_parallel_config")
    translation.carry_all(root, {"name": "name", "dataset": "dataset.id", "model": "model.name"})
    translation.carry_all(
        data,
        {
            "world_size": "strategy.data_parallel_size",
            "total_batch_size": "strategy.data_parallel.batch_size",
            "data_sharding.method": "strategy.data_parallel.data_sharding.method",
            "data_sharding.strategy": "strategy.data_parallel.data_sharding.strategy",
            "data_sharding.seed": "strategy.data_parallel.data_sharding.seed",
            "data_sharding.drop_last": "strategy.data_parallel.data_sharding.drop_last",
        },
    )
    translation.carry_all(
        model,
        {
            "tensor_parallel_size": "strategy.tensor_parallel_size",
            "pipeline_parallel_size": "strategy.pipeline_parallel_size",
        },
    )
    _carry_batch(translation, training.data_parallel_config or DataParallelConfig(), data)
    degrees = training.model_parallel_config or ModelParallelConfig()
    if max(degrees.tensor_parallel_size or 1, degrees.pipeline_parallel_size or 1) > 1:
        translation.put(("strategy", "type"), "hybrid", model)
    _tell_ranks(translation, training.data_parallel_config or DataParallelConfig(), degrees, data)
    synchronization = (*data, "gradient_synchronization")
    carry_backend(translation, (*synchronization, "backend"))
    translation.hand_over((*synchronization, "method"), "gradient_synchronization", "method")
    carry_compression(translation, (*synchronization, "compression"), "gradient_synchronization", "compression")
    backward = (*model, "communication_overlap", "backward")
    if (overlaps := translation.said(backward)) is not None:
        translation.put(("communication", "overlap"), overlaps, backward)
    for key in ("model_sharding", "communication_overlap"):
        translation.hand_over((*model, key))
    for index in range(len(training.training_optimization)):
        item = (*root, "training_optimization", index)
        translation.use((*item, "name"))
        for key in TrainingOptimization.model_fields:
            if key != "name":
                translation.hand_over((*item, key))
    return translation.finish()


def _tell_ranks(
    translation: Translation, config: DataParallelConfig, degrees: ModelParallelConfig, root: PathKey
) -> None:
    """Say how world_size is read beside degrees that split the model, and what the other reading would be."""
    ranks = config.world_size
    ways = (degrees.tensor_parallel_size or 1) * (degrees.pipeline_parallel_size or 1)
    if ranks is None or ways == 1:
        return
    message = _("{ranks} is read as the data parallel degree: {ranks} × {ways} = {gpus} GPUs")
    message = message.format(ranks=ranks, ways=ways, gpus=ranks * ways)
    if config.total_batch_size is not None:
        message += _(", which keeps the batch of {batch}").format(batch=config.total_batch_size)
    if ranks % ways:
        hint = _("Were it all ranks, {ways} would have to divide it.").format(ways=ways)
    else:
        hint = _("Were it all ranks, data parallel would be {degree}: write strategy.data_parallel_size: {degree}")
        hint = hint.format(degree=ranks // ways)
        if config.batch_size_per_gpu is not None:
            own = config.batch_size_per_gpu
            hint += _(" and a batch of {own} × {degree} = {batch}").format(
                own=own, degree=ranks // ways, batch=own * (ranks // ways)
            )
        hint += _(" in the job.")
    translation.note((*root, "world_size"), message, hint, code="other-reading", is_warning=True)


def _carry_batch(translation: Translation, config: DataParallelConfig, root: PathKey) -> None:
    """The batch of a rank follows from the global one and the data parallel degree, and so has to agree with them."""
    origin = (*root, "batch_size_per_gpu")
    own, ranks, total = config.batch_size_per_gpu, config.world_size, config.total_batch_size
    translation.use(origin)
    if own is None:
        return
    if ranks is None:
        message = _("not carried over: without world_size there is no telling the global batch size from it")
        translation.note(origin, message if total is None else _("not carried over: this is what the ranks make of it"))
    elif total is None:
        translation.carry(origin, ("strategy", "data_parallel", "batch_size"), own * ranks)
    else:
        check_product(translation, origin, f"{own} × {ranks}", own * ranks, total)
