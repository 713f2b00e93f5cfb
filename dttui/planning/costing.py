"""What a job costs: its model, strategy and nodes as the cost model wants them, and what is to be said of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from dttui.i18n import _
from dttui.planning.cost.assumptions import (
    HardwareClaim,
    Input,
    Inputs,
    ModelClaim,
    UnknownAssumptionError,
    assume_hardware,
    assume_shape,
    layout_inputs,
)
from dttui.planning.cost.estimate import GB, Estimate, estimate
from dttui.planning.cost.hardware import GpuTable, GpuType, Hardware
from dttui.planning.cost.layout import Layout, faults
from dttui.planning.cost.links import Links, ZoneLink, worst_link
from dttui.planning.cost.rules_of_thumb import RulesOfThumb, rules_of_thumb
from dttui.planning.cost.shape import ModelShape
from dttui.planning.parallelism import pipeline_degree
from dttui.planning.roster import Member
from dttui.spec.findings import Finding, info, warning
from dttui.spec.models import Job, Strategy

_BITS = 8
_NS = 1e-9


@dataclass(frozen=True)
class Costing:
    """A job as the cost model has it, and what came of it."""

    shape: ModelShape
    layout: Layout
    hardware: Hardware
    types: tuple[GpuType, ...]
    """Of each rank."""
    zone_link: ZoneLink | None
    """The slowest between zones; `None` where all nodes are in one."""
    estimate: Estimate
    rules_of_thumb: RulesOfThumb


def cost(
    job: Job, members: Sequence[Member], table: GpuTable, links: Links | None = None
) -> tuple[Costing | None, list[Finding]]:
    """Return what a job costs, where enough is known of its model and its GPUs, and findings about that.

    Args:
        job: the job.
        members: its nodes.
        table: types of GPUs.
        links: what was measured between zones.
    """
    model = job.model
    if model is None or not members or any(member.cuda_slots < member.slots for member in members):
        return None, []
    claim = ModelClaim(
        model.parameters, model.layers, model.hidden_size, model.heads, model.seq_length, model.vocab_size
    )
    try:
        shape, inputs = assume_shape(claim)
        types = _gpu_types(members, table)
        hardware, zone_link, more = _hardware(job, members, types, table, links or {})
    except UnknownAssumptionError as fault:
        return None, [info("no-estimate", "model", _("there is no estimate: {reason}").format(reason=fault))]
    inputs = {**inputs, **more}
    ranks = sum(member.slots for member in members)
    layout, said = _layout(job.strategy, shape, ranks, model.precision, job.framework)
    if layout is None:
        return None, []  # The degrees do not fit the ranks, which is an error of the plan already.
    findings = [
        warning("layout", "strategy", problem, _("The estimate goes on as if that were possible."))
        for problem in faults(layout, shape, ranks, hardware.gpus_per_node)
    ]
    inputs |= layout_inputs(layout, said, hardware)
    result = estimate(shape, layout, hardware, inputs)
    rules = rules_of_thumb(shape.parameters, ranks, len(members), layout.zero_stage)
    costing = Costing(shape, layout, hardware, types, zone_link, result, rules)
    return costing, [*findings, *_memory(costing)]


def _gpu_types(members: Sequence[Member], table: GpuTable) -> tuple[GpuType, ...]:
    """Return the type of each rank's GPU. Raises UnknownAssumptionError where one is not known."""
    types: list[GpuType] = []
    for member in members:
        choice = member.choice
        names = choice.gpu_types[: member.slots]
        if len(names) < member.slots:
            raise UnknownAssumptionError(
                _("the type of the GPUs of {node} is not known").format(node=choice.environment.name)
            )
        for name in names:
            found = table.find(name, choice.gpu_memory_bytes)
            if found is None:
                raise UnknownAssumptionError(_('no GPU type "{gpu}" is known').format(gpu=name))
            types.append(found)
    return tuple(types)


def _hardware(
    job: Job, members: Sequence[Member], types: Sequence[GpuType], table: GpuTable, links: Links
) -> tuple[Hardware, ZoneLink | None, Inputs]:
    """Return the hardware of the slowest rank: all others wait for it."""
    slowest = min(types, key=lambda gpu: gpu.peak_flops("bf16"))
    measured = [size for member in members if member.choice.facts and (size := member.choice.gpu_memory_bytes)]
    is_measured = len(measured) == len(members)
    per_node = gcd(*(member.slots for member in members))
    zones = [zone for member in members if (zone := member.environment.zone)]
    zone_link = worst_link(zones, links)
    bandwidth, latency = _declared_network(job, members)
    bandwidth = bandwidth / per_node if bandwidth is not None else None
    if zone_link is not None:
        narrow = zone_link.bandwidth / per_node
        bandwidth = min(bandwidth, narrow) if bandwidth is not None else narrow
        latency = max(latency or 0.0, zone_link.latency_s)
    claim = HardwareClaim(
        slowest.name,
        len(types),
        per_node,
        gpu_memory_bytes=float(min(measured)) if is_measured else None,
        inter_bandwidth=bandwidth,
        inter_latency_s=latency,
    )
    hardware, inputs = assume_hardware(claim, table)
    if zone_link is not None:
        for name, value in (("inter_bandwidth", bandwidth), ("inter_latency_s", latency)):
            inputs[name] = Input(value=value or 0.0, source=zone_link.source)
    if is_measured:
        inputs["gpus"] = Input(value=hardware.gpus, source="measured")
        inputs["gpu.memory_bytes"] = Input(value=hardware.gpu.memory_bytes, source="measured")
    return hardware, zone_link, inputs


def _declared_network(job: Job, members: Sequence[Member]) -> tuple[float | None, float | None]:
    """Return the least bandwidth (bytes a second a node) and the longest latency (seconds) that the job declares."""
    common = job.resources.network
    networks = [network for member in members if (network := member.node.network or common) is not None]
    bandwidths = [network.bandwidth / _BITS for network in networks if network.bandwidth is not None]
    latencies = [network.latency * _NS for network in networks if network.latency is not None]
    return min(bandwidths, default=None), max(latencies, default=None)


def _layout(
    strategy: Strategy, shape: ModelShape, ranks: int, precision: str | None, framework: str | None
) -> tuple[Layout | None, set[str]]:
    tensor, pipeline = strategy.tensor_parallel_size or 1, pipeline_degree(strategy) or 1
    data, rest = divmod(ranks, tensor * pipeline)
    if rest or not data or strategy.data_parallel_size not in (None, data):
        return None, set()
    stages = strategy.pipeline_parallel
    batch = strategy.data_parallel.batch_size if strategy.data_parallel is not None else None
    micro = stages.micro_batch_size if stages is not None else None
    schedule = stages.schedule if stages is not None else None
    usual_micro = max((batch or data) // data, 1) if pipeline == 1 else 1
    used_micro = micro or usual_micro
    said: Mapping[str, object] = {
        "data": strategy.data_parallel_size,
        "tensor": strategy.tensor_parallel_size,
        "pipeline": pipeline_degree(strategy),
        "micro_batch": micro,
        "global_batch": batch,
        "zero_stage": strategy.zero_stage,
        "precision": precision,
        "schedule": schedule,
    }
    layout = Layout(
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        virtual_stages=_chunks(shape, pipeline) if schedule == "Interleaved" else 1,
        micro_batch=used_micro,
        global_batch=batch or data * used_micro * (4 * pipeline if pipeline > 1 else 1),
        zero_stage=strategy.zero_stage if strategy.zero_stage is not None else 3 if framework == "pytorch-fsdp" else 0,
        precision=precision or "bf16",  # type: ignore[arg-type]  # the spec has the same five words
        schedule="GPipe" if schedule == "GPipe" else "1F1B",
    )
    return layout, {name for name, value in said.items() if value is not None}


def _chunks(shape: ModelShape, pipeline: int) -> int:
    """The fewest chunks a rank that interleave: the least divisor above 1 of a stage's layers."""
    per_stage = shape.layers // pipeline
    return next((chunks for chunks in range(2, per_stage + 1) if per_stage % chunks == 0), 1)


def _memory(costing: Costing) -> list[Finding]:
    memory, room = costing.estimate.memory_per_gpu_gb, costing.hardware.gpu.memory_bytes / GB
    if memory.high <= room:
        return []
    hint = _("Shard more (zero_stage), split more (tensor or pipeline), or take a smaller micro-batch.")
    if memory.low > room:
        text = _("a GPU needs {low} to {high} GB and has {room}: the model does not fit")
    else:
        text = _("a GPU needs {low} to {high} GB and has {room}: the model may not fit")
    message = text.format(low=f"{memory.low:.1f}", high=f"{memory.high:.1f}", room=f"{room:.1f}")
    return [warning("memory", "model", message, hint)]
