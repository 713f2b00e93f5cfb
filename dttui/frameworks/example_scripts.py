"""Which of the shipped scripts trains as a job says: by its framework and by what it splits. Pure."""

from __future__ import annotations

import re

from dttui.errors import UsageError
from dttui.frameworks.registry import traits_of
from dttui.i18n import _
from dttui.spec.entry_points import DEFAULT_FRAMEWORK
from dttui.spec.models import Job

_OF_IMAGES = re.compile(r"\bvi(t|sion)|image|deit", re.IGNORECASE)
_OF_CONVOLUTIONS = re.compile(r"res-?net|conv|cnn", re.IGNORECASE)
_SCHEDULES = (None, "1F1B", "GPipe")
_OF_SCRIPTS = frozenset(("pytorch-ddp", "pytorch-fsdp", "horovod", "deepspeed", "megatron-lm", "tensorflow"))
KNOWS_ALL = frozenset(("megatron-lm",))
"""Frameworks whose script is told by the framework's own arguments, and not by what it reads itself."""
SHARDING_SAYS = {"pytorch-fsdp": frozenset(("recomputation",))}
"""Keys of a job that a framework's file of its own tells the script."""


def choose_script(job: Job) -> tuple[str, str]:
    """Return the framework and the template whose script trains as the job says.

    Raises:
        UsageError: no script does.
    """
    strategy = job.strategy
    tensor, pipeline = strategy.tensor_parallel_size or 1, strategy.pipeline_degree or 1
    splits_by_stage = pipeline > 1 or (strategy.type == "pipeline_parallel" and tensor == 1)
    usual = "pytorch-fsdp" if strategy.zero_stage else DEFAULT_FRAMEWORK
    words = f"{job.model.name if job.model is not None and job.model.name else ''} {job.name}"
    is_of_images = _OF_CONVOLUTIONS.search(words) or _OF_IMAGES.search(words)
    # Megatron-LM's script is a language model: it would train another model than the job names.
    framework = job.framework or ("megatron-lm" if tensor > 1 and not is_of_images else usual)
    if framework not in _OF_SCRIPTS:
        message = _("no script can be written for framework: {name}").format(name=framework)
        raise UsageError(message, _("There are scripts for: {names}.").format(names=", ".join(sorted(_OF_SCRIPTS))))
    if framework == "megatron-lm":
        return framework, framework
    _refuse_degrees(job, framework, tensor, pipeline)
    if framework == "pytorch-ddp" and splits_by_stage:
        _check_stages(job, pipeline)
        return framework, "bert"
    if framework != "pytorch-ddp":
        return framework, framework
    if _OF_CONVOLUTIONS.search(words):
        return framework, "resnet"
    return framework, "vision" if _OF_IMAGES.search(words) else "gpt"


def _refuse_degrees(job: Job, framework: str, tensor: int, pipeline: int) -> None:
    """Refuse the ways of splitting that the scripts of a framework do not know."""
    strategy = job.strategy
    zero = strategy.zero_stage or 0
    asked = (
        ("strategy.tensor_parallel_size", tensor, 1),
        ("strategy.pipeline_parallel_size", pipeline, pipeline if framework == "pytorch-ddp" else 1),
        ("strategy.zero_stage", zero, zero if framework in ("pytorch-fsdp", "deepspeed") else 0),
        (_("the context degree"), _degree(job, traits_of(framework).context_option), 1),
        (_("the expert degree"), _degree(job, traits_of(framework).expert_option), 1),
    )
    for key, value, most in asked:
        if value > most:
            message = _("the script for {framework} does not split so: {key} is {value}")
            other = "pytorch-fsdp" if key.endswith("zero_stage") else "megatron-lm"
            hint = _("Write framework: {name}.").format(name=other)
            raise UsageError(message.format(framework=framework, key=key, value=value), hint)
    data = strategy.data_parallel
    if data is not None and not data.has_equal_shares:
        message = _("the script gives all ranks as many samples, and the job says shares")
        raise UsageError(message, _("Leave {key} out.").format(key="shares"))


def _check_stages(job: Job, stages: int) -> None:
    pipeline = job.strategy.pipeline_parallel
    schedule = pipeline.schedule if pipeline is not None else None
    if schedule not in _SCHEDULES:
        message = _("the script has one stage a rank, and the schedule {name} needs several").format(name=schedule)
        raise UsageError(message, _("Write schedule: 1F1B or GPipe, or framework: megatron-lm."))
    layers = job.model.layers if job.model is not None else None
    if layers is not None and layers < stages:
        message = _("{layers} layers make no {stages} stages").format(layers=layers, stages=stages)
        raise UsageError(message, _("Write fewer stages, or a model of more layers."))


def _degree(job: Job, option: str | None) -> int:
    said = job.framework_options.get(option) if option is not None else None
    return said if type(said) is int and said > 0 else 1
