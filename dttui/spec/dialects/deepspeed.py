"""A configuration of DeepSpeed, `ds_config.json`: what of it plans a job. The file itself stays the script's."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from dttui.i18n import _
from dttui.spec.dialects.translation import Translated, Translation
from dttui.spec.document import validate
from dttui.spec.models import Section
from dttui.spec.problems import PathKey
from dttui.spec.yaml_source import Source

Count = Annotated[int, Field(gt=0)]
_Auto = Literal["auto"]


class _Loose(Section):
    """Keys that are not known here become notes: every version of DeepSpeed has more of them."""

    model_config = ConfigDict(extra="allow")


class Precision(_Loose):
    """Half precision of one kind."""

    enabled: bool | _Auto = False
    """Whether it is used."""


class ZeroOptimization(_Loose):
    """ZeRO."""

    stage: Annotated[int, Field(ge=0, le=3)] | _Auto = 0
    """Stage."""


class TensorParallel(_Loose):
    """Tensor parallelism."""

    autotp_size: Annotated[int, Field(ge=0)] | None = None
    """Degree; 0 for none."""


class DeepSpeedConfig(_Loose):
    """The configuration."""

    train_batch_size: Count | _Auto | None = None
    """Global batch size."""
    train_micro_batch_size_per_gpu: Count | _Auto | None = None
    """Samples a micro-batch."""
    gradient_accumulation_steps: Count | _Auto | None = None
    """Micro-batches a step and rank."""
    fp16: Precision | None = None
    """Half precision."""
    bf16: Precision | None = None
    """Brain floating point."""
    zero_optimization: ZeroOptimization | None = None
    """ZeRO."""
    tensor_parallel: TensorParallel | None = None
    """Tensor parallelism."""


def translate(source: Source) -> Translated:
    """Carry a configuration over. Raises DocumentError with every problem of it."""
    config = validate(source, DeepSpeedConfig)
    translation = Translation(source)
    translation.put(("framework",), "deepspeed", ())
    targets: dict[PathKey, PathKey] = {
        ("train_batch_size",): ("strategy", "data_parallel", "batch_size"),
        ("train_micro_batch_size_per_gpu",): ("strategy", "pipeline_parallel", "micro_batch_size"),
        ("zero_optimization", "stage"): ("strategy", "zero_stage"),
    }
    for origin, target in targets.items():
        if not _is_auto(translation, origin):
            translation.carry(origin, target)
    parallel = ("tensor_parallel", "autotp_size")
    if config.tensor_parallel is not None and config.tensor_parallel.autotp_size:
        translation.carry(parallel, ("strategy", "tensor_parallel_size"))
    translation.use(parallel)
    for precision in ("fp16", "bf16"):
        enabled = (precision, "enabled")
        if _is_auto(translation, enabled):
            continue
        if translation.said(enabled) and translation.has(("model", "precision")):
            translation.note(enabled, _("not carried over: fp16 is enabled too"), is_warning=True)
        elif translation.said(enabled):
            translation.carry(enabled, ("model", "precision"), precision)
        translation.use((precision,) if not translation.said(enabled) else enabled)
    steps = ("gradient_accumulation_steps",)
    translation.expect(steps, 1)
    if not _is_auto(translation, steps) and not translation.is_used(steps):
        translation.hand_over(steps)
    _use_own_distribution(translation)
    return translation.finish(
        message=_("not carried over: DeepSpeed itself has to read it in this file"),
        hint=_("Give the file to the script, as by --deepspeed_config."),
    )


def _is_auto(translation: Translation, origin: PathKey) -> bool:
    said: Any = translation.said(origin)
    if said != "auto":
        return False
    translation.note(origin, _("not carried over: auto means what the trainer says"))
    return True


def _use_own_distribution(translation: Translation) -> None:
    """Some write the world into the file; DeepSpeed does not read that, and dttui knows it of the nodes."""
    message = _("not carried over: how many nodes and ranks there are is known of cluster.nodes")
    for key in ("world_size", "nodes"):
        translation.note(("distributed", key), message)
