"""What a job asks for that its estimate does not count: each option that may change memory or time is classed here."""

from __future__ import annotations

from collections.abc import Iterator

from dttui.frameworks import frameworks
from dttui.frameworks.option_costs import CHECKPOINTS, COUNTED, NEUTRAL, OVERLAP, Uncounted
from dttui.i18n import N_, _
from dttui.spec.models import Job, Section

_NEUTRAL = N_("memory and time of a step are taken to be the same with it")
_ALGORITHM = N_("of a collective's algorithms the one that takes least is taken")
_UNKNOWN = Uncounted(N_("what it changes is not known"))
JOB_CLASSES: dict[str, str | Uncounted] = {
    "strategy.type": NEUTRAL,
    "strategy.data_parallel.batch_size": COUNTED,
    "strategy.data_parallel.shares": Uncounted(
        N_("all ranks are taken to have as many samples"), lambda shares: shares == "equal"
    ),
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
    "strategy.compiled": COUNTED,
    "model.name": NEUTRAL,  # Of a known model its sizes count, as if they were said.
    "model.config": NEUTRAL,  # The same: they are read before anything is counted.
    "model": COUNTED,
    "resources.gpu.count": COUNTED,
    "resources.gpu.ids": COUNTED,
    "resources.network": COUNTED,
    "resources": NEUTRAL,  # What hosts must have; what they have is what counts.
    "resources.network.interface": NEUTRAL,
    "cluster.nodes.role": Uncounted(
        N_("all ranks are taken to train, and no node to keep the parameters for others"),
        lambda role: role != "parameter_server",
    ),
    "cluster.nodes.resources.gpu.count": COUNTED,
    "cluster.nodes.resources.gpu.ids": COUNTED,
    "cluster.nodes.network.interface": NEUTRAL,
    "cluster.nodes.network": COUNTED,
    "cluster.nodes": NEUTRAL,
    "cluster.count": COUNTED,
    "cluster.gpus_per_node": COUNTED,
    "cluster.candidates": Uncounted(N_("the nodes that are named are taken to be those that train")),
    "cluster.topology.groups": NEUTRAL,  # By themselves: with them between_groups counts.
    "cluster.topology.between_groups": COUNTED,
    "cluster.topology.type": Uncounted(N_("all nodes are taken to be as near to each other as the slowest link says")),
    "cluster": NEUTRAL,
    "communication.protocol": Uncounted(
        N_("ranks are taken to talk as NCCL's do"), lambda protocol: protocol == "NCCL"
    ),
    "communication.compression": Uncounted(
        N_("gradients are taken to travel as they are kept"), lambda compression: compression == "none"
    ),
    "communication.overlap": COUNTED,
    "communication.rendezvous_timeout": NEUTRAL,
    "communication.collective_timeout": NEUTRAL,
    "communication.measure": NEUTRAL,
    "communication.allreduce.buffer_size": Uncounted(OVERLAP),
    "communication.allreduce.op": NEUTRAL,
    "communication.collective_ops.allreduce.buffer_size": Uncounted(OVERLAP),
    "communication.collective_ops.allreduce.op": NEUTRAL,
    "communication.collective_ops.reduce_scatter.op": NEUTRAL,
    "communication": Uncounted(_ALGORITHM),
    "recovery.checkpoint.dir": Uncounted(CHECKPOINTS),
    "recovery.checkpoint.write_bandwidth": COUNTED,
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
    known = framework.option_costs
    given = dict(job.framework_options)
    for name, field in framework.options.model_fields.items():
        usual = field.get_default(call_default_factory=True)
        value = given.get(name, usual)
        # A framework that classes none of its options, or not this one: all that it is told is named.
        found = known.get(name, _UNKNOWN) if known is not None else _UNKNOWN
        if value == usual and not (isinstance(found, Uncounted) and found.matters_unsaid(job, value)):
            continue
        if found == NEUTRAL:
            found = Uncounted(_NEUTRAL)
        if isinstance(found, Uncounted) and not found.is_usual(value):
            yield f"framework_options.{name}: " + _(found.reason)


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
