"""What a job costs: its model, strategy and nodes as the cost model wants them, and what is to be said of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from dttui.frameworks import traits_of
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
    unknown_gpu,
)
from dttui.planning.cost.estimate import Estimate, estimate
from dttui.planning.cost.hardware import GpuTable, GpuType, Hardware
from dttui.planning.cost.layout import Layout, faults, usual_batch
from dttui.planning.cost.links import Links, NodeLink, slowest_link
from dttui.planning.cost.rules_of_thumb import RulesOfThumb, rules_of_thumb
from dttui.planning.cost.shape import ModelShape, parameter_count
from dttui.planning.parallelism import context_degree, pipeline_degree
from dttui.planning.roster import Member
from dttui.planning.uncounted import not_counted
from dttui.spec.findings import Finding, info, warning
from dttui.spec.models import Job, Strategy

_BITS = 8
_NS = 1e-9
_MOST_CONTRADICTION = 2.0
"""Between the parameters that are given and those of so many layers: feed-forward parts and heads differ by less."""


@dataclass(frozen=True)
class Costing:
    """A job as the cost model has it, and what came of it."""

    shape: ModelShape
    layout: Layout
    hardware: Hardware
    types: tuple[GpuType, ...]
    """Of each rank."""
    link: NodeLink | None
    """The slowest between the nodes; `None` where none was measured and all are in one zone."""
    estimate: Estimate
    rules_of_thumb: RulesOfThumb


@dataclass(frozen=True)
class Costed:
    """What `cost` has said of some nodes of a job, for whoever would ask it the same."""

    members: tuple[Member, ...]
    costing: Costing | None
    findings: Sequence[Finding]


def cost(
    job: Job, members: Sequence[Member], table: GpuTable, links: Links | None = None
) -> tuple[Costing | None, list[Finding]]:
    """Return what a job costs, where enough is known of its model and its GPUs, and findings about that.

    Args:
        job: the job.
        members: its nodes.
        table: types of GPUs.
        links: what was measured between zones and hosts.
    """
    model = job.model
    if model is None or not members or any(member.environment.simulated for member in members):
        return None, []
    if context_degree(job) > 1:
        message = _("there is no estimate: {reason}").format(reason=_("it does not know context parallelism"))
        return None, [info("no-estimate", "model", message)]
    claim = ModelClaim(
        model.parameters, model.layers, model.hidden_size, model.heads, model.seq_length, model.vocab_size
    )
    try:
        shape, inputs = assume_shape(claim)
        types = _gpu_types(members, table)
        link = node_link(members, links or {})
        hardware, more = _hardware(job, members, types, table, link)
    except UnknownAssumptionError as fault:
        message = _("there is no estimate: {reason}").format(reason=fault)
        return None, [info("no-estimate", "model", message, fault.hint)]
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
    result = estimate(shape, layout, hardware, inputs).model_copy(update={"not_counted": not_counted(job)})
    rules = rules_of_thumb(shape.parameters, ranks, len(members), layout.zero_stage)
    costing = Costing(shape, layout, hardware, types, link, result, rules)
    return costing, [*check_shape(shape), *findings, *check_memory(result)]


def node_link(members: Sequence[Member], links: Links) -> NodeLink | None:
    """Return the slowest link that is known of, or assumed, between the nodes of a job."""
    return slowest_link([(member.name, member.environment.zone) for member in members], links)


def _gpu_types(members: Sequence[Member], table: GpuTable) -> tuple[GpuType, ...]:
    """Return the type of each rank's GPU. Raises UnknownAssumptionError where one is not known."""
    types: list[GpuType] = []
    known: dict[tuple[str, float | None], GpuType | None] = {}
    for member in members:
        names = member.gpu_names[: member.slots]
        if len(names) < member.slots or member.cuda_slots < member.slots:
            hint = _("Declare resources.gpu with count and type in the inventory, or run: dttui agents deploy {node}")
            raise UnknownAssumptionError(
                _("the GPUs of {node} are not known").format(node=member.name), hint.format(node=member.name)
            )
        for name in names:
            key = (name, member.gpu_memory_bytes)
            if key not in known:
                known[key] = table.find(*key)
            found = known[key]
            if found is None:
                raise unknown_gpu(name, table)
            types.append(found)
    return tuple(types)


def _hardware(
    job: Job, members: Sequence[Member], types: Sequence[GpuType], table: GpuTable, link: NodeLink | None
) -> tuple[Hardware, Inputs]:
    """Return the hardware of the slowest rank, which all others wait for, with the least memory of any."""
    precision = job.model.precision if job.model is not None else None
    slowest = min(types, key=lambda gpu: (gpu.peak_flops(precision or "bf16"), gpu.memory_bytes))
    measured = [size for member in members if member.facts and (size := member.gpu_memory_bytes)]
    is_measured = len(measured) == len(members)
    memory = float(min(measured)) if is_measured else min(gpu.memory_bytes for gpu in types)
    per_node = gcd(*(member.slots for member in members))
    bandwidth, latency = _declared_network(job, members)
    bandwidth = bandwidth / per_node if bandwidth is not None else None
    if link is not None:
        narrow = link.bandwidth / per_node
        bandwidth = min(bandwidth, narrow) if bandwidth is not None else narrow
        latency = max(latency or 0.0, link.latency_s)
    claim = HardwareClaim(
        slowest.name,
        len(types),
        per_node,
        gpu_memory_bytes=memory if is_measured or memory < slowest.memory_bytes else None,
        inter_bandwidth=bandwidth,
        inter_latency_s=latency,
    )
    hardware, inputs = assume_hardware(claim, table)
    if link is not None:
        for name, value in (("inter_bandwidth", bandwidth), ("inter_latency_s", latency)):
            inputs[name] = Input(value=value or 0.0, source=link.source)
    if is_measured:
        inputs["gpus"] = Input(value=hardware.gpus, source="measured")
        inputs["gpu.memory_bytes"] = Input(value=hardware.gpu.memory_bytes, source="measured")
    return hardware, inputs


def _declared_network(job: Job, members: Sequence[Member]) -> tuple[float | None, float | None]:
    """Return the least bandwidth (bytes a second a node) and the longest latency (seconds) that the job declares."""
    common = job.resources.network
    networks = [network for member in members if (network := member.node.network or common) is not None]
    bandwidths = [network.bandwidth / _BITS for network in networks if network.bandwidth]  # None of 0.
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
    chunks = stages.virtual_stages if stages is not None else None
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
        "virtual_stages": chunks,
        "recompute": strategy.recomputation,
        "sequence_parallel": strategy.sequence_parallel,
    }
    layout = Layout(
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        virtual_stages=chunks or (_chunks(shape, pipeline) if schedule == "Interleaved" else 1),
        micro_batch=used_micro,
        global_batch=batch or usual_batch(data, used_micro, pipeline),
        zero_stage=strategy.zero_stage if strategy.zero_stage is not None else traits_of(framework).usual_zero_stage,
        recompute=strategy.recomputation or "none",
        sequence_parallel=strategy.sequence_parallel or False,
        precision=precision or "bf16",  # type: ignore[arg-type]  # the spec has the same five words
        schedule="GPipe" if schedule == "GPipe" else "1F1B",
    )
    return layout, {name for name, value in said.items() if value is not None}


def _chunks(shape: ModelShape, pipeline: int) -> int:
    """The fewest chunks a rank that interleave: the least divisor above 1 of a stage's layers."""
    per_stage = shape.layers // pipeline
    return next((chunks for chunks in range(2, per_stage + 1) if per_stage % chunks == 0), 1)


def check_shape(shape: ModelShape) -> list[Finding]:
    """Warn of a number of parameters that layers and hidden size contradict: by more than a factor of two."""
    by_layers = parameter_count(shape.layers, shape.hidden_size, shape.seq_length, shape.vocab_size)
    if 1 / _MOST_CONTRADICTION <= shape.parameters / by_layers <= _MOST_CONTRADICTION:
        return []
    text = _("{parameters} parameters are given, and {layers} layers of {hidden} make {count}")
    message = text.format(
        parameters=f"{shape.parameters:.3g}", layers=shape.layers, hidden=shape.hidden_size, count=f"{by_layers:.3g}"
    )
    return [warning("parameters-differ", "model", message, _("Correct one of them: the estimate takes each as given."))]


def check_memory(result: Estimate) -> list[Finding]:
    """Warn of a model that does not fit its GPUs, or may not."""
    memory, room = result.memory_per_gpu_gb, result.gpu_memory_gb
    if memory.high <= room:
        return []
    hint = _("Shard more (zero_stage), split more (tensor or pipeline), or take a smaller micro-batch.")
    if memory.low > room:
        text = _("a GPU needs {low} to {high} GB and has {room}: the model does not fit, if attention keeps s²")
    else:
        text = _("a GPU needs {low} to {high} GB and has {room}: the model may not fit, if attention keeps s²")
    message = text.format(low=f"{memory.low:.1f}", high=f"{memory.high:.1f}", room=f"{room:.1f}")
    return [warning("memory", "model", message, hint)]
