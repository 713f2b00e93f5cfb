"""What a job asks for that its estimate does not count: each option that may change memory or time is classed here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dttui.frameworks import frameworks
from dttui.i18n import N_, _
from dttui.spec.models import Job, Section

COUNTED = "counted"
"""The estimate changes with it."""
NEUTRAL = "neutral"
"""It changes neither the memory nor the time of a step."""


@dataclass(frozen=True)
class Uncounted:
    """An option that the estimate passes over."""

    reason: str
    """What it would change, as a message that is translated where it is told."""
    is_usual: Callable[[Any], bool] = lambda _value: False
    """Whether a value is what the estimate takes anyway."""


_OFFLOADED = N_("what is kept off the GPU is taken to be on it, and its way there and back is not timed")
_ADAM = N_("the states are taken to be those of Adam")
_OVERLAP = N_("how gradients are gathered and sent meanwhile is taken as usual")
_SHARDS = N_("shards are taken to be shared out among all ranks, and two layers gathered at a time")

CLASSES: dict[str, dict[str, str | Uncounted]] = {
    "deepspeed": {
        "config_for": NEUTRAL,
        "gradient_accumulation_steps": Uncounted(N_("a rank is taken to work on its whole share of the batch at once")),
        "gradient_clipping": Uncounted(N_("the pass over all gradients that finds their norm is not timed")),
        "optimizer": Uncounted(_ADAM, lambda value: "adam" in str(getattr(value, "type", "")).lower()),
        "scheduler": NEUTRAL,
        "offload_optimizer": Uncounted(_OFFLOADED),
        "offload_param": Uncounted(_OFFLOADED),
        "nvme_path": NEUTRAL,
        "overlap_comm": Uncounted(_OVERLAP),
        "tensor_parallel": NEUTRAL,
        "config": Uncounted(N_("keys of DeepSpeed's own are not looked at")),
    },
    "pytorch-ddp": {"elastic": NEUTRAL},
    "pytorch-fsdp": {
        "elastic": NEUTRAL,
        "launcher": NEUTRAL,
        "wrap": Uncounted(_SHARDS),
        "layer_classes": NEUTRAL,
        "min_parameters": Uncounted(_SHARDS),
        "reshard_after_forward": Uncounted(_SHARDS),
        "shard_group": Uncounted(_SHARDS),
        "reduce_dtype": Uncounted(N_("gradients are taken to travel as they are kept")),
        "cpu_offload": Uncounted(_OFFLOADED),
        "state_dict": NEUTRAL,
    },
    "megatron-lm": {
        "context_parallel_size": COUNTED,  # There is no estimate then.
        "expert_parallel_size": Uncounted(N_("all experts are taken to be on every rank, and each to work")),
        "save_interval": Uncounted(N_("checkpoints are taken to be written as often as loses least")),
        "arguments": Uncounted(N_("arguments of Megatron-LM's own are not looked at")),
    },
    "horovod": {
        "fusion_threshold": Uncounted(_OVERLAP),
        "cycle_time_ms": Uncounted(_OVERLAP),
        "timeline": NEUTRAL,
        "timeline_mark_cycles": NEUTRAL,
        "autotune": Uncounted(_OVERLAP),
        "autotune_log": NEUTRAL,
    },
    "tensorflow": {},
    "command": {},
}
"""Framework → its options. One that another package adds is not known: all that its options say is named."""
JOB_CLASSES: dict[str, str | Uncounted] = {
    "strategy.type": NEUTRAL,
    "strategy.data_parallel.batch_size": COUNTED,
    "strategy.data_parallel.num_workers": Uncounted(N_("data is taken to be there when a rank wants it")),
    "strategy.data_parallel.data_sharding": NEUTRAL,
    "strategy.model_parallel.model_splitting": Uncounted(N_("all stages are taken to have as many layers")),
    "strategy.model_parallel.pipeline_stages": COUNTED,
    "strategy.pipeline_parallel": COUNTED,
    "strategy.data_parallel_size": COUNTED,
    "strategy.tensor_parallel_size": COUNTED,
    "strategy.pipeline_parallel_size": COUNTED,
    "strategy.zero_stage": COUNTED,
    "strategy.sequence_parallel": COUNTED,
    "strategy.recomputation": COUNTED,
    "model.name": NEUTRAL,
    "model": COUNTED,
    "resources.gpu.count": COUNTED,
    "resources.network": COUNTED,
    "resources": NEUTRAL,  # What hosts must have; what they have is what counts.
    "recovery.checkpoint": Uncounted(N_("checkpoints are taken to be written as often as loses least")),
    "recovery": NEUTRAL,
}
"""Keys of the job's own sections; one stands for all below it that have no line of their own."""


def class_of(path: str) -> str | Uncounted | None:
    """Return the class of a key of the job's own sections, by the nearest key above it; `None` for one without."""
    while path:
        if path in JOB_CLASSES:
            return JOB_CLASSES[path]
        path = path.rpartition(".")[0]
    return None


def not_counted(job: Job) -> list[str]:
    """Return what the job says that its estimate does not count, each with what is taken instead."""
    told = [*_of_framework(job)]
    for name in ("strategy", "model", "resources", "recovery"):
        section = getattr(job, name)
        told += _of_section(section, name) if section is not None else []
    return list(dict.fromkeys(told))


def _of_framework(job: Job) -> Iterator[str]:
    framework = next((item for item in frameworks() if item.name == job.framework), None)
    if framework is None:
        return
    known = CLASSES.get(framework.name)
    given = dict(job.framework_options)
    for name, field in framework.options.model_fields.items():
        if name in given and given[name] != field.get_default(call_default_factory=True):
            found = known.get(name) if known is not None else Uncounted(N_("what it changes is not known"))
            if isinstance(found, Uncounted) and not found.is_usual(_Parts.of(given[name])):
                yield f"framework_options.{name}: " + _(found.reason)


@dataclass(frozen=True)
class _Parts:
    """What a job file says of an option that is a section."""

    type: object = ""

    @classmethod
    def of(cls, value: Any) -> _Parts:
        return cls(value.get("type", "")) if isinstance(value, dict) else cls()


def _of_section(section: Section, path: str) -> Iterator[str]:
    for name in section.model_fields_set:
        value, key = getattr(section, name), f"{path}.{name}"
        if value is None or value == type(section).model_fields[name].get_default(call_default_factory=True):
            continue
        found = class_of(key)
        if isinstance(found, Uncounted):
            yield f"{key}: " + _(found.reason)
        elif isinstance(value, Section):
            yield from _of_section(value, key)
