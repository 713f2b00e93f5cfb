"""A configuration of DeepSpeed, `ds_config.json`: what of it plans a job, and the rest as options of the framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field

from dttui.i18n import _
from dttui.spec.deepspeed_keys import KNOWN_KEYS, OptimizerType, SchedulerType
from dttui.spec.dialects.translation import Translated, Translation
from dttui.spec.document import validate
from dttui.spec.models import Section
from dttui.spec.problems import PathKey
from dttui.spec.yaml_source import YamlSource

Count = Annotated[int, Field(gt=0)]
_Auto = Literal["auto"]
_OPTIONS: PathKey = ("framework_options",)
_NVME_PATH: PathKey = (*_OPTIONS, "nvme_path")
_AUTO_OF_ITS_OWN: tuple[PathKey, ...] = (("pipeline", "stages"), ("data_types", "keep_in_fp32_modules"))
"""Where "auto" is a word of DeepSpeed's own."""


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


def translate(source: YamlSource) -> Translated:
    """Carry a configuration over. Raises DocumentError with every problem of it."""
    config = validate(source, DeepSpeedConfig)
    translation = Translation(source)
    translation.put(("framework",), "deepspeed", ())
    _use_own_distribution(translation)
    targets: dict[PathKey, PathKey] = {
        ("train_batch_size",): ("strategy", "data_parallel", "batch_size"),
        ("train_micro_batch_size_per_gpu",): ("strategy", "pipeline_parallel", "micro_batch_size"),
        ("zero_optimization", "stage"): ("strategy", "zero_stage"),
        ("gradient_accumulation_steps",): (*_OPTIONS, "gradient_accumulation_steps"),
        ("gradient_clipping",): (*_OPTIONS, "gradient_clipping"),
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
        translation.use(enabled)
    _carry_made(translation, "optimizer", get_args(OptimizerType))
    _carry_made(translation, "scheduler", get_args(SchedulerType))
    for name in ("offload_optimizer", "offload_param"):
        block = ("zero_optimization", name)
        translation.carry((*block, "device"), (*_OPTIONS, name))
        if translation.carried(_NVME_PATH) in (None, translation.said((*block, "nvme_path"))):
            translation.carry((*block, "nvme_path"), _NVME_PATH)
    for origin in tuple(translation.left()):
        if origin[0] in KNOWN_KEYS:
            translation.carry(origin, (*_OPTIONS, "config", *origin))
    _choose_reader(translation)
    return translation.finish(message=_("not carried over: DeepSpeed has no such key"))


def _carry_made(translation: Translation, name: str, types: Sequence[str]) -> None:
    """Carry over what DeepSpeed makes, an optimizer or a schedule; small letters will do for it, and are made large."""
    said = translation.said((name, "type"))
    if not isinstance(said, str):
        return
    known = next((item for item in types if item.casefold() == said.casefold()), said)
    translation.carry((name, "type"), (*_OPTIONS, name, "type"), known)
    translation.carry((name, "params"), (*_OPTIONS, name, "params"))


def _choose_reader(translation: Translation) -> None:
    """Take it that Hugging Face's Trainer reads the file where anything in it is left to that."""
    for origin in translation.leaves():
        if translation.said(origin) == "auto" and origin not in _AUTO_OF_ITS_OWN:
            # A configuration of accelerate, which fills in the same, says more.
            translation.put((*_OPTIONS, "config_for"), "trainer", origin, is_implied=True)
            return


def _is_auto(translation: Translation, origin: PathKey) -> bool:
    """Whether something is left to the trainer, which is what an option that is not given means then."""
    if translation.said(origin) != "auto":
        return False
    translation.use(origin)
    return True


def _use_own_distribution(translation: Translation) -> None:
    """Some write the world into the file; DeepSpeed does not read that, and dttui knows it of the nodes."""
    message = _("not carried over: how many nodes and ranks there are is known of cluster.nodes")
    for key in ("world_size", "nodes"):
        translation.note(("distributed", key), message)
