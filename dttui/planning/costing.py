"""What a job costs: its model, strategy and nodes as the cost model wants them, and what is to be said of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from dttui.frameworks.registry import context_degree, expert_degree, traits_of
from dttui.i18n import _, in_a_row, sentences
from dttui.planning.cost.assumptions import (
    CLAIMED,
    HardwareClaim,
    Input,
    Inputs,
    ModelClaim,
    Source,
    UnknownAssumptionError,
    assume_hardware,
    assume_shape,
    layout_inputs,
    unknown_gpu,
)
from dttui.planning.cost.calibration import CostBasis
from dttui.planning.cost.correction import Learned
from dttui.planning.cost.estimate import Estimate, estimate
from dttui.planning.cost.hardware import GpuTable, GpuType, Hardware, Interconnect, Precision, usual_precision
from dttui.planning.cost.layout import Fault, Layout, faults, usual_batch, usual_micro_batch
from dttui.planning.cost.links import Links, NodeLink, slowest_inside, slowest_link
from dttui.planning.cost.rules_of_thumb import RulesOfThumb, rules_of_thumb
from dttui.planning.cost.shape import ModelShape, exact_count
from dttui.planning.parallelism import pipeline_degree
from dttui.planning.roster import COUNTED_AT, Member
from dttui.planning.uncounted import not_counted
from dttui.spec.findings import Finding, info, warning
from dttui.spec.models import GroupLink, Job, Model, NetworkRequest
from dttui.spec.problems import PathKey
from dttui.spec.strategy import DataParallel, PipelineParallel
from dttui.words import parameters

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

    @property
    def basis(self) -> CostBasis | None:
        """What the estimate can be made of again; `None` where ranks have several types of GPUs."""
        is_of_one_kind = len({gpu.name for gpu in self.types}) == 1
        return CostBasis.of(self.shape, self.layout, self.hardware) if is_of_one_kind else None


@dataclass(frozen=True)
class Costed:
    """What `cost` has said of some nodes of a job, for whoever would ask it the same."""

    members: tuple[Member, ...]
    costing: Costing | None
    findings: Sequence[Finding]

    @property
    def estimate(self) -> Estimate | None:
        """What a step takes, and what fills the memory."""
        return self.costing.estimate if self.costing is not None else None

    @property
    def rules_of_thumb(self) -> RulesOfThumb | None:
        """What usual rules say of that."""
        return self.costing.rules_of_thumb if self.costing is not None else None


def cost(
    job: Job,
    members: Sequence[Member],
    table: GpuTable,
    links: Links | None = None,
    learned: Mapping[str, Learned] | None = None,
) -> tuple[Costing | None, list[Finding]]:
    """Return what a job costs, where enough is known of its model and its GPUs, and findings about that.

    Args:
        job: the job.
        members: its nodes.
        table: types of GPUs.
        links: what was measured between zones and hosts.
        learned: name of a type of GPU → what jobs have shown of hosts that have it.
    """
    model = job.model
    if model is None or not members or is_on_unknown_cpu(members, table):
        return None, []
    try:
        shape, inputs = model_shape(job)
        types = gpu_types(members, table)
        link = node_link(members, links or {})
        inside = slowest_inside([member.name for member in members if member.slots > 1], links or {})
        hardware, more = _hardware(job, members, types, table, link, inside)
        hardware = replace(hardware, learned=(learned or {}).get(hardware.gpu.name))
    except UnknownAssumptionError as fault:
        message = _("there is no estimate: {reason}").format(reason=fault)
        return None, [info("no-estimate", "model", message, fault.hint)]
    inputs = {**inputs, **more}
    ranks = sum(member.slots for member in members)
    layout, said = _layout(job, shape, types, hardware.gpus_per_node)
    if layout is None:
        return None, []  # The degrees do not fit the ranks, which is an error of the plan already.
    findings = [_of_fault(fault, job) for fault in faults(layout, shape, ranks, hardware.gpus_per_node)]
    lacking = check_precision(layout, hardware)
    layout = replace(layout, precision=hardware.gpu.nearest(layout.precision))
    hardware = hardware.corrected_for(layout.precision)
    inputs |= layout_inputs(layout, said, hardware)
    result = estimate(shape, layout, hardware, inputs).model_copy(update={"not_counted": not_counted(job)})
    rules = rules_of_thumb(shape.parameters, ranks, len(members), layout.zero_stage)
    costing = Costing(shape, layout, hardware, types, link, result, rules)
    return costing, [
        *check_shape(shape),
        *findings,
        *lacking,
        *check_memory(result, shape, layout),
    ]


def model_shape(job: Job) -> tuple[ModelShape, Inputs]:
    """Return the shape of a job's model: as the job says, else as its framework has it, else as is usual.

    Raises:
        UnknownAssumptionError: neither the number of parameters nor layers and hidden size are said.
    """
    model = job.model or Model()
    if model.config is not None and not (model.parameters or (model.layers and model.hidden_size)):
        message = _("the sizes that model.config stands for are not read")
        raise UnknownAssumptionError(
            message, _("A plan reads them; `dttui estimate` says what is wrong with the file.")
        )
    said = {name: getattr(model, name) for name in CLAIMED}
    usual = {name: value for name, value in traits_of(job.framework).usual_model(job).items() if said[name] is None}
    shape, inputs = assume_shape(ModelClaim(**{**said, **usual}, name=model.name))
    return shape, inputs | {f"model.{name}": Input(value=value, source="default") for name, value in usual.items()}


def _of_fault(fault: Fault, job: Job) -> Finding:
    """Return a warning at the key of the number that does not fit."""
    strategy, traits = job.strategy, traits_of(job.framework)
    paths: dict[str, PathKey] = {
        "tensor": ("strategy", "tensor_parallel_size"),
        "pipeline": strategy.pipeline_path,
        "layers": strategy.pipeline_path,
        "virtual_stages": ("strategy", "pipeline_parallel", "virtual_stages"),
        "global_batch": ("strategy", "data_parallel", "batch_size"),
        "zero_stage": ("strategy", "zero_stage"),
        "context": ("framework_options", traits.context_option or ""),
        "expert": ("framework_options", traits.expert_option or ""),
    }
    hint = _("The estimate goes on as if that were possible.")
    return warning("layout", "strategy", fault.message, hint, path=paths.get(fault.field, ()))


def node_link(members: Sequence[Member], links: Links) -> NodeLink | None:
    """Return the slowest link that is known of, or assumed, between the nodes of a job."""
    return slowest_link([(member.name, member.environment.zone) for member in members], links)


def gpu_types(members: Sequence[Member], table: GpuTable) -> tuple[GpuType, ...]:
    """Return the type of each rank's GPU. Raises UnknownAssumptionError where one is not known."""
    types: list[GpuType] = []
    known: dict[tuple[str, float | None], GpuType | None] = {}
    for member in members:
        names = member.used_of(member.gpu_names, member.slots)
        is_simulated = member.environment.simulated
        if len(names) < member.slots or (member.cuda_slots < member.slots and not is_simulated):
            hint = _("Declare resources.gpu with count and type in the inventory, or run: dttui agents deploy {node}")
            if member.path == COUNTED_AT:
                hint = _("Write resources.gpu.type in the job, such as A100.")
            raise UnknownAssumptionError(
                _("the GPUs of {node} are not known").format(node=member.name), hint.format(node=member.name)
            )
        for name in names:
            key = (name, member.gpu_memory_bytes)
            if key not in known:
                known[key] = table.find(*key)
            found = known[key]
            if found is None or (found.device == "cpu") is not is_simulated:
                raise unknown_gpu(name, table)
            types.append(found)
    return tuple(types)


def is_on_unknown_cpu(members: Sequence[Member], table: GpuTable) -> bool:
    """Whether ranks compute on a CPU of which nothing is known: where simulated GPUs are of no type for a CPU."""
    kinds = {(member.gpu_names[:1], member.gpu_memory_bytes) for member in members if member.environment.simulated}
    found = [table.find(names[0], size) if names else None for names, size in kinds]
    return any(gpu is None or gpu.device != "cpu" for gpu in found)


def cpu_remedy(otherwise: str) -> str:
    """Return what to do where there is no estimate for that, beside something else."""
    hint = _("Or describe the CPU in gpus.yaml, with `device: cpu`, and give its type to the simulated GPUs.")
    return sentences([otherwise, hint])


def _hardware(
    job: Job,
    members: Sequence[Member],
    types: Sequence[GpuType],
    table: GpuTable,
    link: NodeLink | None,
    inside: NodeLink | None,
) -> tuple[Hardware, Inputs]:
    """Return the hardware of the slowest rank, which all others wait for, with the least memory of any.

    What was measured inside hosts is what collectives reached there, of which nothing is taken off any more.
    """
    kinds = {id(gpu): gpu for gpu in types}.values()
    precision = _precision(job) or usual_precision(kinds)
    slowest = min(kinds, key=lambda gpu: (gpu.peak_flops(precision), gpu.memory_bytes))
    measured = _measured_memory(members)
    memory = measured if measured is not None else min(gpu.memory_bytes for gpu in kinds)
    per_node = gcd(*(member.slots for member in members))
    bandwidth, latency = _network(job, members, link)
    bandwidth = bandwidth / per_node if bandwidth is not None else None
    claim = HardwareClaim(
        slowest.name,
        len(types),
        per_node,
        gpu_memory_bytes=memory if measured is not None or memory < slowest.memory_bytes else None,
        intra_bandwidth=inside.bandwidth if inside is not None else None,
        inter_bandwidth=bandwidth,
        inter_latency_s=latency,
        storage_bandwidth=job.recovery.checkpoint.write_bytes_per_s if job.recovery.checkpoint is not None else None,
    )
    hardware, inputs = assume_hardware(claim, table)
    if hardware.nodes != len(members):
        sizes = sorted((member.slots for member in members), reverse=True)
        hardware = replace(hardware, sizes=tuple(sizes))
        inputs["nodes"] = Input(value=len(members), source="declared")
    if link is not None:
        inputs |= _of_link(link, bandwidth or 0.0, latency or 0.0, per_node)
    if inside is not None:
        hardware = replace(hardware, measured=replace(hardware.efficiency, intra_node=1.0))
        # Its latency is that of beginning a collective, which a group of many GPUs does not have once for each of them.
        for name, number in (("intra_bandwidth", inside.bandwidth), ("efficiency.intra_node", 1.0)):
            inputs[name] = Input(value=number, source="measured", measured_at=inside.measured_at)
    if measured is not None:
        for name, number in (("gpus", hardware.gpus), ("gpu.memory_bytes", hardware.gpu.memory_bytes)):
            inputs[name] = Input(value=number, source="measured", measured_at=_told_at(members))
    return hardware, inputs


def _measured_memory(members: Sequence[Member]) -> float | None:
    """Return the bytes of the smallest GPU as their hosts tell them; `None` where not every host has."""
    sizes = [member.gpu_memory_bytes for member in members if member.facts and not member.environment.simulated]
    told = [float(size) for size in sizes if size]
    return min(told) if len(told) == len(members) else None


def _told_at(members: Sequence[Member]) -> float | None:
    """Return the Unix time of the oldest of what hosts have told; `None` where one does not say when it has."""
    times = [member.facts.time for member in members if member.facts is not None]
    known = [time for time in times if time is not None]
    return min(known) if len(known) == len(times) else None


def _of_link(link: NodeLink, bandwidth: float, latency_s: float, per_node: int) -> Inputs:
    """Return what of bandwidth (bytes a second a GPU) and latency is the link's; what a job declares may be worse."""
    latency_at = link.latency_at or link.measured_at
    inputs: Inputs = {}
    if bandwidth == link.bandwidth / per_node:
        inputs["inter_bandwidth"] = Input(value=bandwidth, source=link.source, measured_at=link.measured_at)
    if latency_s == link.latency_s:
        source: Source = "default" if latency_at is None else "measured"
        inputs["inter_latency_s"] = Input(value=latency_s, source=source, measured_at=latency_at)
    return inputs


def _network(job: Job, members: Sequence[Member], link: NodeLink | None) -> tuple[float | None, float | None]:
    """Return bandwidth (bytes a second a node) and latency (seconds) that count: the worse of said and known."""
    bandwidth, latency = _declared_network(job, members)
    if link is None:
        return bandwidth, latency
    narrow = min(bandwidth, link.bandwidth) if bandwidth is not None else link.bandwidth
    return narrow, max(latency or 0.0, link.latency_s)


def known_network(job: Job, members: Sequence[Member], link: NodeLink | None) -> Interconnect | None:
    """Return the network between nodes where it was measured or the job declares it; `None` where a default counts."""
    bandwidth, latency = _network(job, members, link)
    if bandwidth is None or latency is None:
        return None
    known = {
        name: item.source for name, item in (_of_link(link, bandwidth, latency, 1) if link is not None else {}).items()
    }
    return None if "default" in known.values() else Interconnect(bandwidth, latency)


def crossed(job: Job, members: Sequence[Member]) -> GroupLink | None:
    """Return what the job declares between groups of nodes, where its nodes are of several."""
    topology = job.cluster.topology
    if topology is None or not topology.groups:
        return None
    named = topology.groups_of_nodes()
    # A node of no group is one by itself, whose id may be a group's name, too.
    groups = {(named.get(member.node.id), None if member.node.id in named else member.node.id) for member in members}
    return topology.between_groups if len(groups) > 1 else None


def _declared_network(job: Job, members: Sequence[Member]) -> tuple[float | None, float | None]:
    """Return the least bandwidth (bytes a second a node) and the longest latency (seconds) that the job declares."""
    common = job.resources.network
    networks: list[NetworkRequest | GroupLink] = [
        network for member in members if (network := member.node.network or common) is not None
    ]
    if (between := crossed(job, members)) is not None:
        networks.append(between)
    bandwidths = [network.bandwidth / _BITS for network in networks if network.bandwidth]  # None of 0.
    latencies = [network.latency * _NS for network in networks if network.latency is not None]
    return min(bandwidths, default=None), max(latencies, default=None)


def _precision(job: Job) -> Precision | None:
    """Return the precision that a job declares."""
    return job.model.precision if job.model is not None else None


def _layout(job: Job, shape: ModelShape, types: Sequence[GpuType], per_node: int) -> tuple[Layout | None, set[str]]:
    strategy, framework = job.strategy, traits_of(job.framework)
    precision = _precision(job)
    tensor, pipeline = strategy.tensor_parallel_size or 1, pipeline_degree(strategy) or 1
    context, expert = context_degree(job), expert_degree(job)
    data, rest = divmod(len(types), tensor * pipeline * context)
    if rest or not data or strategy.data_parallel_size not in (None, data):
        return None, set()
    stages = strategy.pipeline_parallel or PipelineParallel()
    micro, schedule, chunks = stages.micro_batch_size, stages.schedule, stages.virtual_stages
    batch = _batch(strategy.data_parallel or DataParallel(), data * (micro or 1))
    usual_micro = max((batch or data * usual_micro_batch(shape)) // data, 1) if pipeline == 1 else 1
    used_micro = micro or usual_micro
    values: Mapping[str, object] = {
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
        "overlap": job.communication.overlap,
        "context": context if context > 1 else None,
        "expert": expert if expert > 1 else None,
        "compiled": strategy.compiled,
    }
    kept = _kept(job)
    said = {name for name, value in values.items() if value is not None} | kept.keys()
    zero_stage = strategy.zero_stage if strategy.zero_stage is not None else framework.usual_zero_stage
    overlap, tensor_overlap = overlaps(job, zero_stage)
    layout = Layout(
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        virtual_stages=_virtual_stages(stages, shape, pipeline),
        micro_batch=used_micro,
        global_batch=batch or usual_batch(data, used_micro, pipeline),
        zero_stage=zero_stage,
        recompute=strategy.recomputation or "none",
        sequence_parallel=strategy.sequence_parallel or False,
        precision=precision or usual_precision({id(gpu): gpu for gpu in types}.values()),
        schedule=schedule if schedule is not None and schedule != "Interleaved" else "1F1B",
        overlap=overlap,
        tensor_overlap=tensor_overlap,
        context=context,
        expert=expert,
        shard=per_node // tensor if framework.shards_within_nodes(job) and tensor <= per_node else None,
        compiled=strategy.compiled or False,
    )
    return replace(layout, **laid_out(job)), said


def laid_out(job: Job) -> dict[str, Any]:
    """Return what of a layout a job's framework has by itself, or is told, and what its model says of weights."""
    return {**traits_of(job.framework).usual_layout(job), **_kept(job)}


def overlaps(job: Job, zero_stage: int) -> tuple[bool, bool]:
    """Return whether gradients, and parts of tensor-parallel products, travel while a job's framework computes."""
    said, framework = job.communication.overlap, traits_of(job.framework)
    gradients = said if said is not None else framework.overlaps_gradients or zero_stage == 3
    return gradients, framework.overlaps_tensors(job)


def _kept(job: Job) -> dict[str, Any]:
    """Return what the job says of its optimizer, and how weights and activations are kept."""
    model = job.model or Model()
    said = {name: getattr(model, name) for name in ("optimizer", "weights", "fused")}
    return {name: value for name, value in said.items() if value is not None}


def _batch(parallel: DataParallel, whole: int) -> int | None:
    """Return the global batch that a job declares: a multiple of `whole`, if shares by speed need not add up to one."""
    if parallel.batch_size is None or parallel.has_equal_shares:
        return parallel.batch_size
    return -(-parallel.batch_size // whole) * whole


def _virtual_stages(stages: PipelineParallel, shape: ModelShape, pipeline: int) -> int:
    """Chunks a rank; where nobody says, the fewest that interleave: the least divisor above 1 of a stage's layers."""
    if stages.virtual_stages is not None:
        return stages.virtual_stages
    if stages.schedule != "Interleaved":
        return 1
    per_stage = shape.layers // pipeline
    return next((chunks for chunks in range(2, per_stage + 1) if per_stage % chunks == 0), 1)


def check_shape(shape: ModelShape) -> list[Finding]:
    """Warn of a number of parameters that layers and hidden size contradict: by more than a factor of two."""
    by_layers = exact_count(shape)
    if 1 / _MOST_CONTRADICTION <= shape.parameters / by_layers <= _MOST_CONTRADICTION:
        return []
    text = _("{parameters} parameters are given, and {layers} layers of {hidden} make {count}")
    message = text.format(
        parameters=parameters(shape.parameters, 3),
        layers=shape.layers,
        hidden=shape.hidden_size,
        count=parameters(by_layers, 3),
    )
    return [warning("parameters-differ", "model", message, _("Correct one of them: the estimate takes each as given."))]


def check_precision(layout: Layout, hardware: Hardware) -> list[Finding]:
    """Warn of a precision that the GPUs lack."""
    gpu, asked = hardware.gpu, layout.precision
    counted = gpu.nearest(asked)
    if counted == asked:
        return []
    message = _("{gpu} has no {asked}: it is counted as {counted}").format(gpu=gpu.name, asked=asked, counted=counted)
    return [warning("precision", "model", message, _("Say precision: {counted}.").format(counted=counted))]


def check_memory(result: Estimate, shape: ModelShape, layout: Layout) -> list[Finding]:
    """Warn of a model that does not fit its GPUs, or may not, with what there is to do in its layout."""
    memory, room = result.memory_per_gpu_gb, result.gpu_memory_gb
    if memory.high <= room:
        return []
    hints = [_what_shrinks(shape, layout)]
    if shape.attention == "plain":
        hints.append(_("Where attention is fused, say model.attention: flash."))
    if memory.low > room:
        text = _("a GPU needs {low} to {high} GB and has {room}: the model does not fit")
    else:
        text = _("a GPU needs {low} to {high} GB and has {room}: the model may not fit")
    message = text.format(low=f"{memory.low:.1f}", high=f"{memory.high:.1f}", room=f"{room:.1f}")
    return [warning("memory", "model", message, sentences(hints))]


def _what_shrinks(shape: ModelShape, layout: Layout) -> str:
    """Return what in a layout can be changed so that a GPU needs less."""
    ways = []
    if layout.data > 1 and layout.pipeline == 1 and layout.zero_stage < 3:
        ways.append(_("shard more (zero_stage: 3)"))
    elif layout.data > 1 and layout.zero_stage == 0:
        ways.append(_("shard the optimizer (zero_stage: 1)"))
    if layout.data > 1 and (shape.heads > layout.tensor or shape.layers > layout.pipeline):
        ways.append(_("split layers (tensor or pipeline)"))
    if layout.recompute != "full":
        ways.append(_("compute activations again (recomputation: full)"))
    if layout.micro_batch > 1:
        ways.append(_("take a smaller micro-batch"))
    ways.append(_("take more GPUs"))
    return _("What helps: {ways}. `dttui recommend` compares layouts.").format(ways=in_a_row(ways))
