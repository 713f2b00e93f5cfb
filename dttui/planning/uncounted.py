"""What a job asks for that its estimate does not count: each option that may change memory or time is classed here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dttui.frameworks import frameworks
from dttui.i18n import N_, _
from dttui.spec.models import Job, Section

COUNTED = "counted"
"""The estimate changes with it."""
NEUTRAL = "neutral"
"""It changes neither the memory nor the time of a step; of a framework's options that is said."""
_NEUTRAL = N_("memory and time of a step are taken to be the same with it")


@dataclass(frozen=True)
class Uncounted:
    """An option that the estimate passes over."""

    reason: str
    """What it would change, as a message that is translated where it is told."""
    is_usual: Callable[[Any], bool] = lambda _value: False
    """Whether a value is what the estimate takes anyway."""


def _is_adam(optimizer: Any) -> bool:
    """Whether what DeepSpeed is asked for keeps two states a parameter, as Adam and its kin do."""
    return isinstance(optimizer, Mapping) and "adam" in str(optimizer.get("type", "")).lower()


_OFFLOADED = N_("what is kept off the GPU is taken to be on it, and its way there and back is not timed")
_ADAM = N_("the states are taken to be those of Adam")
_OVERLAP = N_("how gradients are gathered and sent meanwhile is taken as usual")
_SHARDS = N_("shards are taken to be shared out among all ranks, and two layers gathered at a time")
_ALGORITHM = N_("of a collective's algorithms the one that takes least is taken")
_REDUCED = N_("gradients are taken to travel as they are kept")
_CHECKPOINTS = N_("checkpoints are taken to be written as often as loses least")
_PRESENT = Uncounted(N_("all nodes are taken to be there, from the first step to the last"))
_TRACED = Uncounted(N_("what it takes to write that down is not timed"))

CLASSES: dict[str, dict[str, str | Uncounted]] = {
    "deepspeed": {
        "config_for": NEUTRAL,
        "gradient_accumulation_steps": Uncounted(N_("a rank is taken to work on its whole share of the batch at once")),
        "gradient_clipping": Uncounted(N_("the pass over all gradients that finds their norm is not timed")),
        "optimizer": Uncounted(_ADAM, _is_adam),
        "scheduler": NEUTRAL,
        "offload_optimizer": Uncounted(_OFFLOADED),
        "offload_param": Uncounted(_OFFLOADED),
        "nvme_path": NEUTRAL,  # What is kept there is named with what is offloaded.
        "overlap_comm": Uncounted(_OVERLAP),
        "tensor_parallel": Uncounted(N_("tensors are taken to be split as Megatron-LM splits them")),
        "config": Uncounted(N_("keys of DeepSpeed's own are not looked at")),
    },
    "pytorch-ddp": {"elastic": _PRESENT},
    "pytorch-fsdp": {
        "elastic": _PRESENT,
        "launcher": NEUTRAL,
        "wrap": Uncounted(_SHARDS),
        "layer_classes": Uncounted(_SHARDS),
        "min_parameters": Uncounted(_SHARDS),
        "reshard_after_forward": Uncounted(_SHARDS),
        "shard_group": Uncounted(_SHARDS),
        "reduce_dtype": Uncounted(_REDUCED),
        "cpu_offload": Uncounted(_OFFLOADED),
        "state_dict": Uncounted(N_("each rank is taken to write its own part of a checkpoint")),
    },
    "megatron-lm": {
        "context_parallel_size": COUNTED,  # There is no estimate then.
        "expert_parallel_size": Uncounted(N_("all experts are taken to be on every rank, and each to work")),
        "save_interval": Uncounted(_CHECKPOINTS),
        "arguments": Uncounted(N_("arguments of Megatron-LM's own are not looked at")),
    },
    "horovod": {
        "fusion_threshold": Uncounted(_OVERLAP),
        "cycle_time_ms": Uncounted(_OVERLAP),
        "timeline": _TRACED,
        "timeline_mark_cycles": _TRACED,
        "autotune": Uncounted(_OVERLAP),
        "autotune_log": _TRACED,
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
    "strategy.data_parallel_size": NEUTRAL,  # What the other degrees leave; a plan refuses any other.
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
    "resources.network.interface": NEUTRAL,
    "cluster.nodes.role": Uncounted(
        N_("all ranks are taken to train, and no node to keep the parameters for others"),
        lambda role: role != "parameter_server",
    ),
    "cluster.nodes.resources.gpu.count": COUNTED,
    "cluster.nodes.network.interface": NEUTRAL,
    "cluster.nodes.network": COUNTED,
    "cluster.nodes": NEUTRAL,
    "cluster.topology": Uncounted(N_("all nodes are taken to be as near to each other as the slowest link says")),
    "cluster": NEUTRAL,
    "communication.protocol": Uncounted(
        N_("ranks are taken to talk as NCCL's do"), lambda protocol: protocol == "NCCL"
    ),
    "communication.rendezvous_timeout": NEUTRAL,
    "communication.collective_timeout": NEUTRAL,
    "communication.allreduce.buffer_size": Uncounted(_OVERLAP),
    "communication.allreduce.op": NEUTRAL,
    "communication.collective_ops.allreduce.buffer_size": Uncounted(_OVERLAP),
    "communication.collective_ops.allreduce.op": NEUTRAL,
    "communication.collective_ops.reduce_scatter.op": NEUTRAL,
    "communication": Uncounted(_ALGORITHM),
    "recovery.checkpoint.dir": Uncounted(_CHECKPOINTS),
    "recovery": NEUTRAL,
}
"""Keys of the job's own sections; one stands for all below it that have no line of their own."""
SECTIONS = ("strategy", "model", "resources", "cluster", "communication", "recovery")
"""Sections of a job that may say what memory and time depend on."""


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
    for name in SECTIONS:
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
        usual = field.get_default(call_default_factory=True)
        value = given.get(name, usual)
        if value == usual and not _widens(job, name, value):
            continue
        found = known[name] if known is not None else Uncounted(N_("what it changes is not known"))
        if found == NEUTRAL:
            found = Uncounted(_NEUTRAL)
        if isinstance(found, Uncounted) and not found.is_usual(value):
            yield f"framework_options.{name}: " + _(found.reason)


def _widens(job: Job, name: str, value: Any) -> bool:
    """Whether gradients kept in half precision travel in fp32, as FSDP sends them where nobody says otherwise."""
    precision = job.model.precision if job.model is not None else None
    return name == "reduce_dtype" and value == "fp32" and precision not in ("fp32", "tf32")


def _of_section(section: Section, path: str) -> Iterator[str]:
    """Name the keys of a section, and of those in it that have classes of their own; of a list each key once."""
    for name, field in type(section).model_fields.items():
        value, key = getattr(section, name), f"{path}.{name}"
        if value is None or value == field.get_default(call_default_factory=True):
            continue
        if any(known.startswith(f"{key}.") for known in JOB_CLASSES):
            for item in value if isinstance(value, tuple) else (value,):
                yield from _of_section(item, key)
        elif isinstance(found := class_of(key), Uncounted) and not found.is_usual(value):
            yield f"{key}: " + _(found.reason)
