"""What `framework_options` of a DeepSpeed job may hold, and what is wrong with it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from dttui.i18n import _
from dttui.spec.deepspeed_keys import BATCH_KEYS, BLOCKS, KNOWN_KEYS, VALUES, OptimizerType, SchedulerType
from dttui.spec.free_values import FreeValues
from dttui.spec.problems import PathKey, PlacedValueError, did_you_mean, shown, with_hint
from dttui.spec.section import MOST_COUNT, Section
from dttui.spec.text import Text

_COUNTS = (*BATCH_KEYS, "data_parallel_size", "sequence_parallel_size")


class Optimizer(Section):
    """The optimizer that DeepSpeed makes; without one, the script brings its own."""

    type: OptimizerType
    """By DeepSpeed's name of it."""
    params: FreeValues = Field(default_factory=dict)
    """Its arguments: lr, betas, eps, weight_decay."""


class Scheduler(Section):
    """The schedule of the learning rate that DeepSpeed makes."""

    type: SchedulerType
    """By DeepSpeed's name of it."""
    params: FreeValues = Field(default_factory=dict)
    """Its arguments: warmup_num_steps, total_num_steps."""


def _known(config: dict[str, Any]) -> dict[str, Any]:
    """Refuse what DeepSpeed would pass over, or fall over."""
    faults: list[tuple[PathKey, str]] = []
    for key, value in config.items():
        if key not in KNOWN_KEYS:
            message = _("DeepSpeed has no key {key}").format(key=shown(key))
            faults.append(((key,), with_hint(message, did_you_mean(key, KNOWN_KEYS))))
        elif key in BLOCKS and not isinstance(value, dict):
            faults.append(((key,), _("expected a mapping of keys to values, found {value}").format(value=shown(value))))
        elif key in VALUES and isinstance(value, (dict, tuple)):
            faults.append(((key,), _("expected a single value, found {value}").format(value=shown(value))))
        elif key in _COUNTS and value != "auto" and not (type(value) is int and 0 < value <= MOST_COUNT):
            message = _("expected a whole number from 1 to {most}, found {value}")
            faults.append(((key,), message.format(most=MOST_COUNT, value=shown(value))))
    if faults:
        raise PlacedValueError(*faults)
    return config


class DeepSpeedOptions(Section):
    """What can be told about DeepSpeed; what is not here goes into `config`, by DeepSpeed's own names."""

    config_for: Literal["deepspeed", "trainer", "accelerate", "none"] = "deepspeed"
    """How the script is given the file, which DTTUI_DEEPSPEED_CONFIG names in any case.

    `deepspeed`: --deepspeed --deepspeed_config FILE; `trainer`: --deepspeed FILE, as Hugging Face's Trainer has it, and
    what the job leaves open is "auto" in the file; `accelerate`: the same by no argument, as its Accelerator goes by
    variables, under run.env; `none`: by no argument.
    """
    gradient_accumulation_steps: Annotated[int, Field(gt=0, le=MOST_COUNT)] | None = None
    """Micro-batches a step."""
    gradient_clipping: Annotated[float, Field(ge=0)] | None = None
    """Norm to which gradients are clipped; 0 for as they are, 1 by default, as DeepSpeed has it."""
    optimizer: Optimizer | None = None
    """The optimizer."""
    scheduler: Scheduler | None = None
    """The schedule of the learning rate."""
    offload_optimizer: Literal["none", "cpu", "nvme"] = "none"
    """Where optimizer states are kept instead of on the GPU."""
    offload_param: Literal["none", "cpu", "nvme"] = "none"
    """Where parameters are kept instead of on the GPU."""
    nvme_path: Text | None = None
    """Directory on a local disk of every host, for nvme."""
    overlap_comm: bool | None = None
    """Whether gradients are reduced while the backward pass goes on; by default in stage 3."""
    tensor_parallel: Literal["autotp", "script"] = "autotp"
    """Who splits tensors where the job says so: DeepSpeed's AutoTP, or the script, which passes an mpu."""
    config: Annotated[FreeValues, AfterValidator(_known)] = Field(default_factory=dict)
    """Any keys of DeepSpeed's own, which go over those that are written from the job."""

    @property
    def leaves_open(self) -> bool:
        """Whether who reads the file fills in "auto"."""
        return self.config_for in ("trainer", "accelerate")

    @model_validator(mode="after")
    def _complete(self) -> DeepSpeedOptions:
        for name, device in (("offload_optimizer", self.offload_optimizer), ("offload_param", self.offload_param)):
            if device == "nvme" and self.nvme_path is None:
                raise PlacedValueError(((name,), _("nvme needs nvme_path, a directory on a local disk of every host")))
        is_auto = [key for key in _COUNTS if self.config.get(key) == "auto"]
        if is_auto and not self.leaves_open:
            message = _(
                'only Hugging Face\'s libraries fill in "auto": write a number, or config_for: trainer or accelerate'
            )
            raise PlacedValueError(*((("config", key), message) for key in is_auto))
        return self
