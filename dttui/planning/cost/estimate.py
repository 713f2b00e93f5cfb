"""An estimate as people and programs read it: memory and time as ranges, with parts, inputs and what is left out."""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from dttui.i18n import _
from dttui.planning.cost.adapters import trained_parameters
from dttui.planning.cost.assumptions import Input, Inputs, with_correction
from dttui.planning.cost.collectives import (
    CollectiveChoice,
    choose_all_reduce,
    choose_broadcast,
    group_link,
    hierarchical_all_reduce_s,
)
from dttui.planning.cost.failure_cost import FailureCost, failure_cost
from dttui.planning.cost.hardware import Hardware
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.memory import MemoryEstimate, leaves_out, memory_on
from dttui.planning.cost.residuals import Residuals, extrapolations, residuals_of
from dttui.planning.cost.shape import Attention, ModelShape
from dttui.planning.cost.step_time import TimeEstimate, step_time

GB = 1e9
TOKENS_PER_PARAMETER = 20
"""Where nobody says how long to train: what is best for its compute (Hoffmann et al. 2022, Chinchilla)."""
TOKENS_AS_MEASURE = 1e9
"""The same for what no such rule is of: adapters, and models that do not write one token after the other."""
IMAGES_AS_MEASURE = 90 * 1_281_167
"""Of networks of convolutions: 90 epochs of ImageNet, as ResNet's makers train (He et al. 2016)."""
LEAST_SPARE = 0.05
"""Share of a GPU's memory below which what fits is called tight: the driver, a peak or a longer batch takes it."""
COMMUNICATION = ("tensor_parallel", "context_parallel", "expert_parallel", "pipeline_transfer", "data_parallel")
"""Parts of a step in which data travels."""
SERIAL = ("pipeline_bubble", "data_parallel", "optimizer")
"""Parts of a step that more replicas do not divide."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MemoryRange(_Value):
    """Memory of the GPU that needs most, in GB (10⁹ bytes)."""

    low: float
    """Sum of the parts."""
    high: float
    """With the largest usual context and a fragmented allocator; "fits" means this."""
    parts: dict[str, float]
    """What it is made of."""
    excludes: list[str]
    """What is not counted."""


class TimeRange(_Value):
    """Seconds of one step."""

    value: float
    """Sum of the parts."""
    low: float
    """If it goes better than published runs usually do."""
    high: float
    """If worse."""
    parts: dict[str, float]
    """What it is made of."""


class Scaling(_Value):
    """The same global batch on so many nodes, the degrees within a replica kept."""

    nodes: int
    """Nodes."""
    speed_up: float
    """Over the fewest nodes that hold one replica."""
    efficiency: float
    """Speed-up over how many times as many nodes."""


class Amdahl(_Value):
    """What Amdahl's law allows of more nodes, before their own traffic (seed 002 §3.1)."""

    parallel_share: float
    """Of a step on the fewest nodes that hold one replica, 0 to 1: what more replicas divide."""
    speed_up: float
    """Over those nodes, of the nodes there are."""
    limit: float | None
    """Of any number of nodes; `None` where nothing limits it."""


class TokenGoal(_Value):
    """What training to a number of tokens takes, at the estimated step time and without interruptions."""

    tokens: float
    """In all; images, where the model is a network of convolutions."""
    tokens_are_given: bool
    """Whether a person said so; else `TOKENS_PER_PARAMETER` for each parameter that a token comes by, or
    `TOKENS_AS_MEASURE`."""
    tokens_per_day: float
    """All GPUs together."""
    hours: float
    """To that many tokens."""
    energy_kwh: float | None
    """Of the GPUs alone at their full board power, kWh; `None` where the table of GPUs does not have it."""


class Estimate(_Value):
    """What a job costs."""

    memory_per_gpu_gb: MemoryRange
    """Memory."""
    gpu_memory_gb: float
    """What one GPU has."""
    fits: bool
    """Whether the upper end is within that."""
    host_memory_per_gpu_gb: float
    """What offloading puts into the host's memory."""
    step_time_s: TimeRange
    """Time."""
    tokens_per_s: float
    """All GPUs together; images, where the model is a network of convolutions."""
    samples_per_s: float
    """Sequences or images, all GPUs together."""
    tflops_per_gpu: float
    """Recomputed operations count."""
    mfu: float
    """Model FLOP/s utilisation, 0 to 1; recomputed operations do not count."""
    communication_share: float
    """Of the step, 0 to 1: collectives, transfers."""
    scaling: list[Scaling] = Field(default_factory=list)
    """Speed-up by nodes."""
    amdahl: Amdahl | None = None
    """The law's bound for the same; `None` where one replica takes all there is."""
    collectives: list[CollectiveChoice] = Field(default_factory=list)
    """How to synchronise the replicas: gradients by all-reduce, parameters at the start by broadcast."""
    failures: FailureCost
    """What failures cost, and how often to write a checkpoint."""
    goal: TokenGoal | None = None
    """Tokens a day, hours and energy to so many tokens; `None` in records of before."""
    inputs: dict[str, Input]
    """Every number that went in."""
    assumes: list[str] = Field(default_factory=list)
    """What is taken for granted that decides much of it."""
    not_counted: list[str] = Field(default_factory=list)
    """What the job says that changes nothing here though it may change memory or time, each with what is taken."""

    @property
    def is_tight(self) -> bool:
        """Whether it fits, but with less than `LEAST_SPARE` of the memory to spare."""
        return self.fits and self.memory_per_gpu_gb.high > (1 - LEAST_SPARE) * self.gpu_memory_gb


def part_names() -> dict[str, str]:
    """Return what the parts of memory and of a step are called."""
    return {
        "parameters": _("parameters"),
        "gradients": _("gradients"),
        "optimizer": _("optimizer"),
        "activations": _("activations"),
        "embedding": _("embedding"),
        "logits": _("logits"),
        "recomputation": _("layer computed again"),
        "gathered": _("gathered layers"),
        "casts": _("weights as computed with"),
        "update": _("optimizer's step"),
        "buckets": _("gradient buckets"),
        "context": _("CUDA context"),
        "compute": _("computing"),
        "recompute": _("computing again"),
        "host": _("waiting for the host"),
        "tensor_parallel": _("tensor parallel"),
        "context_parallel": _("context parallel"),
        "expert_parallel": _("to experts and back"),
        "pipeline_transfer": _("between stages"),
        "pipeline_bubble": _("pipeline bubble"),
        "data_parallel": _("data parallel"),
    }


def attention_assumption(attention: Attention) -> str:
    """Return what an estimate takes attention to be."""
    if attention == "flash":
        return _(
            "attention is fused, as FlashAttention is, and keeps no s² matrix (sequence × sequence); "
            "`model.attention: plain` is for one that does"
        )
    return _(
        "attention keeps its s² matrix (sequence × sequence), in memory and in time; "
        "fused attention, such as FlashAttention, keeps none and needs less of both: `model.attention: flash`"
    )


def convolution_assumption() -> str:
    """Return what an estimate takes convolutions to be."""
    return _(
        "images of 224 × 224 pixels, channels last, are there when they are needed; batch norms and activations are "
        "kernels of their own"
    )


def estimate(shape: ModelShape, layout: Layout, hardware: Hardware, inputs: Inputs) -> Estimate:
    """Return what a layout costs on some hardware, corrected by what jobs have taken there in its precision."""
    hardware = hardware.corrected_for(layout.precision)
    time, memory = step_time(shape, layout, hardware), memory_on(shape, layout, hardware)
    return describe(shape, layout, hardware, inputs, time, memory)


def describe(
    shape: ModelShape,
    layout: Layout,
    hardware: Hardware,
    inputs: Inputs,
    time: TimeEstimate,
    memory: MemoryEstimate,
) -> Estimate:
    """Return an estimate of what is computed already."""
    talking = sum(time.parts[name] for name in COMMUNICATION)
    speed_ups, law = scaling(shape, layout, hardware)
    correction = hardware.correction
    learned = correction.time if correction is not None else None
    spread = learned.spread_at(traffic_share(time)) if learned is not None else 0.0
    off = Residuals(1 - spread, 1 + spread) if learned is not None else residuals_of(shape, layout, hardware)
    low_s, high_s = off.range_s(time.best_s, time.worst_s)
    return Estimate(
        memory_per_gpu_gb=MemoryRange(
            low=memory.low / GB,
            high=memory.high / GB,
            parts={name: size / GB for name, size in memory.parts.items()},
            excludes=leaves_out(),
        ),
        gpu_memory_gb=hardware.gpu.memory_bytes / GB,
        fits=memory.high <= hardware.gpu.memory_bytes,
        host_memory_per_gpu_gb=memory.host_bytes / GB,
        step_time_s=TimeRange(
            value=time.value,
            low=low_s,
            high=high_s,
            parts=time.parts,
        ),
        goal=_usual_goal(shape, hardware, time.tokens / time.value),
        assumes=[
            attention_assumption(shape.attention) if shape.convolutions is None else convolution_assumption(),
            *_precision_assumption(layout, hardware, inputs),
            *_routing_assumption(layout, hardware),
            *_extrapolation(shape, layout, hardware),
        ],
        tokens_per_s=time.tokens / time.value,
        samples_per_s=layout.global_batch / time.value,
        tflops_per_gpu=time.tflops_per_gpu,
        mfu=time.mfu,
        communication_share=talking / time.value,
        scaling=speed_ups,
        amdahl=law,
        collectives=collectives(shape, layout, hardware, time),
        failures=failure_cost(
            trained_parameters(shape), hardware.gpus, _writing_nodes(layout, hardware) * hardware.storage
        ),
        inputs=with_correction(inputs, correction, spread),
    )


def _writing_nodes(layout: Layout, hardware: Hardware) -> int:
    """Return how many nodes write a part of a checkpoint: those whose ranks hold what no other has."""
    sharded = layout.shard_ranks if layout.zero_stage else layout.expert
    parts = layout.tensor * layout.pipeline * sharded
    return min(hardware.nodes, max(layout.pipeline, -(-parts // hardware.gpus_per_node)))


def _extrapolation(shape: ModelShape, layout: Layout, hardware: Hardware) -> list[str]:
    if not (told := extrapolations(shape, layout, hardware)):
        return []
    return [_("no run was measured with {what}: the estimate extrapolates").format(what=", ".join(told))]


def traffic_share(time: TimeEstimate) -> float:
    """Return which share of a step is traffic, 0 to 1; a bubble is idle for what its stages do."""
    parts = time.parts
    once = {"pipeline_bubble", "data_parallel", "optimizer"}
    stage = sum(seconds for name, seconds in parts.items() if name not in once)
    sent = sum(parts[name] for name in COMMUNICATION if name not in once)
    idle = parts["pipeline_bubble"] * sent / stage if stage else 0.0
    return min((sum(parts[name] for name in COMMUNICATION) + idle) / time.value, 1.0)


def with_tokens(estimate: Estimate, tokens: float | None) -> Estimate:
    """Return an estimate that goes to so many tokens; `None` leaves the usual number."""
    usual = estimate.goal
    if tokens is None or usual is None:
        return estimate
    longer = tokens / usual.tokens
    energy = usual.energy_kwh * longer if usual.energy_kwh is not None else None
    goal = TokenGoal(
        tokens=tokens,
        tokens_are_given=True,
        tokens_per_day=usual.tokens_per_day,
        hours=usual.hours * longer,
        energy_kwh=energy,
    )
    return estimate.model_copy(update={"goal": goal})


def _usual_goal(shape: ModelShape, hardware: Hardware, tokens_per_s: float) -> TokenGoal:
    is_ruled = shape.causal and shape.lora is None
    tokens = TOKENS_PER_PARAMETER * shape.used_parameters if is_ruled else TOKENS_AS_MEASURE
    tokens = tokens if shape.convolutions is None else IMAGES_AS_MEASURE
    hours, power = tokens / tokens_per_s / 3600, hardware.gpu.power
    return TokenGoal(
        tokens=tokens,
        tokens_are_given=False,
        tokens_per_day=tokens_per_s * 86400,
        hours=hours,
        energy_kwh=hours * hardware.gpus * power / 1000 if power is not None else None,
    )


def _precision_assumption(layout: Layout, hardware: Hardware, inputs: Inputs) -> list[str]:
    """Say why a precision is taken that is not the usual one."""
    said = inputs.get("layout.precision")
    if layout.precision == "bf16" or said is None or said.source != "default":
        return []
    text = _("{precision}, since {gpu} has no bf16")
    return [text.format(precision=layout.precision, gpu=hardware.gpu.name)]


def _routing_assumption(layout: Layout, hardware: Hardware) -> list[str]:
    """Say what is taken of tokens whose experts are on several nodes: it decides most of what such a step takes."""
    if layout.expert == 1 or layout.expert * layout.tensor_of_experts <= hardware.linked:
        return []
    text = _(
        "a token goes to every node that has an expert of its own, and little hides that: routing limited to a few "
        "nodes sends less, and schedules such as DualPipe wait less"
    )
    return [text]


def scaling(shape: ModelShape, layout: Layout, hardware: Hardware) -> tuple[list[Scaling], Amdahl | None]:
    """Return speed-ups from the fewest nodes that hold one replica, doubling, up to those there are; and their bound.

    Bubble, gradients and the optimizer's step do not get shorter with more replicas: they are Amdahl's serial part.
    Of nodes with unequal numbers of GPUs those with most come first.
    """
    replica = layout.context * layout.tensor * layout.pipeline
    times: list[tuple[int, int, float, TimeEstimate]] = []
    for nodes in _node_counts(hardware, replica):
        some = hardware.with_nodes(nodes)
        data, rest = divmod(some.gpus, replica)
        fits = data * replica // layout.pipeline % (layout.expert * layout.tensor_of_experts) == 0
        batch = layout.global_batch
        if hardware.sizes and layout.virtual_stages == 1:
            # What does not come out even is filled up: sequences a second are compared.
            batch = -(-batch // max(data * layout.micro_batch, 1)) * data * layout.micro_batch
        if not rest and data and fits and batch % (data * layout.micro_batch) == 0:
            time = step_time(shape, replace(layout, data=data, global_batch=batch), some)
            times.append((nodes, some.gpus, batch / time.value, time))
    if not times:
        return [], None
    _fewest, first, slowest, base = times[0]
    rows = [
        Scaling(nodes=nodes, speed_up=rate / slowest, efficiency=rate / slowest / (gpus / first))
        for nodes, gpus, rate, _time in times
    ]
    if len(times) == 1:
        return rows, None
    share = 1 - sum(base.parts[name] for name in SERIAL) / base.value
    law = Amdahl(
        parallel_share=share,
        speed_up=amdahl(share, hardware.gpus / first),
        limit=1 / (1 - share) if share < 1 else None,
    )
    return rows, law


def _node_counts(hardware: Hardware, replica: int) -> list[int]:
    """Return how many nodes to compare: from the fewest that hold one replica on, doubled, up to all there are."""
    fewest = next(
        (count for count in range(1, hardware.nodes + 1) if hardware.with_nodes(count).gpus >= replica), hardware.nodes
    )
    if hardware.sizes:
        return list(range(fewest, hardware.nodes + 1))
    counts = [fewest]
    while counts[-1] < hardware.nodes:
        counts.append(min(2 * counts[-1], hardware.nodes))
    return counts


def collectives(shape: ModelShape, layout: Layout, hardware: Hardware, time: TimeEstimate) -> list[CollectiveChoice]:
    """Return how replicas had best reduce their gradients and spread their first parameters; nothing for one."""
    if layout.replicas == 1:
        return []
    experts = shape.layers * shape.expert_weights
    own = (shape.parameters - experts) / layout.tensor + experts / (layout.expert * layout.tensor_of_experts)
    own /= layout.pipeline
    trained = own * trained_parameters(shape) / shape.parameters
    link = group_link(hardware, layout.replicas, layout.tensor)
    gradients = trained * layout.bytes_per_reduced_gradient
    in_steps = hierarchical_all_reduce_s(gradients, layout.replicas, layout.tensor, hardware)
    # Two of the three passes over the weights are backwards, and the last micro-batch alone has gradients to send.
    backward_s = (2 / 3 * time.parts["compute"] + time.parts["recompute"]) / layout.micro_batches
    reduce = choose_all_reduce(hardware.nodes, layout.replicas, gradients, link, in_steps, backward_s)
    return [reduce, choose_broadcast(layout.replicas, own * layout.bytes_per_parameter, link)]


def amdahl(parallel_share: float, units: float) -> float:
    """Return 1 / ((1−P) + P/N) (seed 002 §3.1)."""
    return 1 / ((1 - parallel_share) + parallel_share / units)


def amdahl_text(estimate: Estimate) -> str | None:
    """Return Amdahl's law for the nodes of an estimate, the same words wherever it is shown; `None` for one node."""
    if len(estimate.scaling) < 2:
        return None
    law, speed_up = estimate.amdahl, estimate.scaling[-1].speed_up
    if law is None or law.limit is None:
        return _("All of the step gets shorter with more nodes.")
    text = _("Amdahl: {share} of the step gets shorter with more nodes: {here}× here at best, {most}× on any number.")
    told = text.format(share=f"{law.parallel_share:.1%}", here=f"{law.speed_up:.3g}", most=f"{law.limit:,.3g}")
    return told if speed_up >= 1 else told + " " + _("More nodes make a step longer: they talk more than they save.")
