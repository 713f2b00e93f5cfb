"""Recommendations in words: which layouts are fastest, why, and which framework runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from pydantic import BaseModel, ConfigDict, Field

from dttui.frameworks import Framework, frameworks, get_framework
from dttui.frameworks.traits import Spread
from dttui.i18n import _
from dttui.planning.cost.assumptions import Inputs, layout_inputs
from dttui.planning.cost.estimate import GB, LEAST_SPARE, Estimate, describe
from dttui.planning.cost.hardware import Hardware
from dttui.planning.cost.layout import KEPT, Layout, usual_micro_batch
from dttui.planning.cost.layout_search import Found, LayoutCandidate, Trained, Wish, search
from dttui.planning.cost.shape import ModelShape
from dttui.planning.cost.ways_out import ways_out
from dttui.spec.models import Job

SMALL_MODEL = 1e9
MEDIUM_MODEL = 10e9
"""Parameters at which seed 002's guide changes the degrees."""
_BY_ZERO_STAGE = (Spread.REPLICAS, Spread.ZERO_1, Spread.ZERO_2, Spread.ZERO_3)

MOST_SLOWER = 0.15
"""Share of a step that the usual way for a size may take longer than the fastest, and still be the first: who knows no
more of a model than its size had better begin simply."""
TOKENS_PER_STEP = 1e6
LEAST_TOLD = 0.001
"""Share of a step from which on it is told what gradients take."""


class Recommendation(BaseModel):
    """One layout, with its cost and what speaks for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data_parallel_size: int
    """Replicas."""
    tensor_parallel_size: int
    """Ranks that share each layer."""
    pipeline_parallel_size: int
    """Stages."""
    context_parallel_size: int
    """Ranks that share out each sequence."""
    expert_parallel_size: int
    """Ranks that share out the experts."""
    virtual_stages: int
    """Chunks of layers a rank; more than 1 is the interleaved schedule."""
    layers_less: int
    """How many of the first and the last stage have a layer less than the others: 0 to 2, the last one first."""
    micro_batch: int
    """Sequences a rank works on at once."""
    global_batch: int
    """Sequences a step."""
    zero_stage: int
    """Sharding over the replicas."""
    recompute: str
    """`none`, `selective` or `full`."""
    sequence_parallel: bool
    """Whether the tensor-parallel ranks split the sequence too."""
    slower_by: float
    """Than the first, 0.05 being five per cent."""
    frameworks: list[str]
    """Those that can train so, the usual one first."""
    reasons: list[str]
    """What speaks for it, or against."""
    estimate: Estimate
    """What it costs."""


class Advice(BaseModel):
    """What a search came to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    framework: str
    """By the size of the model alone (seed 004's guide)."""
    framework_reason: str
    """Why."""
    guide: str | None
    """Where the usual way is that seed 002's guide has for models of which only the size is known: the first
    candidate, or the second where it is more than `MOST_SLOWER` slower than the fastest."""
    candidates: list[Recommendation]
    """The best of each (tensor, pipeline), the fastest first, but for what `guide` tells."""
    tried: int
    """Layouts that can be."""
    too_large: int
    """How many of them need more memory than a GPU has."""
    problem: str | None = None
    """Why there is no candidate."""
    ways_out: list[str] = Field(default_factory=list)
    """What would help then, a sentence each."""


@dataclass(frozen=True)
class JobAdvice:
    """What a search for a job came to."""

    advice: Advice
    gpus: int
    gpu: str
    """Type of the slowest, as which all are counted."""
    global_batch: int
    """Sequences a step that the search was for."""
    batch_is_given: bool
    """Whether the job, or who asked, says so."""
    shape_is_given: bool
    """Whether the model's layers and hidden size are; else those of a published model of its size are taken."""
    framework: str | None
    """The job's; `None` without a job, or where it names none."""
    staying: str | None = None
    """What the job's framework can do itself, where it cannot train in the first layout."""
    gpu_types: Mapping[str, int] = field(default_factory=dict)
    """Type → how many there are of it, where there are several."""


def framework_for(parameters: float) -> tuple[str, str]:
    """Return the framework that seed 004's guide names for a model of that size, and the guide's line."""
    guides = [(guide, item.name) for item in frameworks() if (guide := item.size_guide) is not None]
    found = [(guide.below, name, guide.reason) for guide, name in guides if parameters < guide.below]
    _below, name, reason = min(found, key=lambda item: item[0])
    return name, reason


def frameworks_of(layout: Layout, shape: ModelShape | None = None) -> list[str]:
    """Return the frameworks that can train in a layout, the usual one first; none that splits tensors shards more.

    Who splits tensors by itself makes the model by itself, too, of layers of transformers: none of convolutions.
    """
    spread = _BY_ZERO_STAGE[layout.zero_stage]
    shares = layout.context > 1 or layout.expert > 1
    if layout.zero_stage > 1 and (shares or layout.tensor > 1):
        return []
    if layout.tensor > 1 or layout.virtual_stages > 1 or shares:
        spread = Spread.TENSORS
    elif layout.pipeline > 1:
        spread = Spread.STAGES
    able = [item for item in frameworks() if spread in item.spreads and (not shares or item.context_option)]
    if shape is not None and shape.convolutions is not None:
        able = [item for item in able if Spread.TENSORS not in item.spreads]
    return [item.name for item in sorted(able, key=lambda item: item.spreads[spread])]


def usually_trained(layout: Layout) -> Layout:
    """Return a layout as the usual framework for it trains by itself: what hides behind computing, whose attention."""
    able = frameworks_of(layout)
    if not able:
        return layout
    framework = get_framework(able[0])
    bare = Layout()
    told = {name: getattr(bare, name) for name in (*KEPT, "tuned_attention")}
    told |= framework.usual_layout(Job(name="any", framework=framework.name))
    told |= {name: getattr(layout, name) for name in ("expert_tensor", "gradient_bytes", "recompute_modules")}
    return replace(layout, overlap=framework.overlaps_gradients or layout.zero_stage == 3, **told)


def _usually(shape: ModelShape, wish: Wish, layout: Layout) -> tuple[ModelShape, Layout]:
    return shape, replace(usually_trained(layout), **wish.kept)


def guided(parameters: float, wish: Wish) -> Wish | None:
    """Return the degrees that seed 002's guide names for a size; `None` from 10 B on, where all three are searched."""
    if parameters >= MEDIUM_MODEL or {wish.tensor, wish.pipeline} - {None, 1} or wish.zero_stage is not None:
        return None
    return replace(wish, tensor=1, pipeline=1, zero_stage=0 if parameters < SMALL_MODEL else 3)


def usual_global_batch(shape: ModelShape, hardware: Hardware) -> int:
    """Return sequences for about a million tokens a step (GPT-3 took 0.5 to 3.2), a multiple of the GPUs."""
    if shape.convolutions is not None:
        return hardware.gpus * usual_micro_batch(shape)
    return hardware.gpus * max(round(TOKENS_PER_STEP / shape.seq_length / hardware.gpus), 1)


def recommend(
    shape: ModelShape,
    hardware: Hardware,
    global_batch: int,
    inputs: Inputs,
    wish: Wish | None = None,
    *,
    batch_is_given: bool = True,
    trained: Trained | None = None,
) -> Advice:
    """Return all feasible layouts, the best of each (tensor, pipeline), ranked by predicted step time.

    Args:
        shape: the model.
        hardware: what there is.
        global_batch: sequences a step.
        inputs: of shape and hardware, for the estimates.
        wish: what is fixed.
        batch_is_given: whether a person named the global batch, for the source of that input.
        trained: how a layout is trained in; `None` for as the usual framework does.
    """
    wish, trained = _for_adapters(shape, wish or Wish()), trained or partial(_usually, shape, wish or Wish())
    hardware = hardware.corrected_for(wish.precision or "bf16")
    found = search(shape, hardware, global_batch, wish, trained)
    framework, why = framework_for(shape.parameters)
    candidates = found.candidates
    best = candidates[0] if candidates else None
    guide = None
    shape_is_given = "model.layers" not in inputs or inputs["model.layers"].source != "default"
    if not shape_is_given and (narrow := guided(shape.parameters, wish)) is not None:
        usual = search(shape, hardware, global_batch, narrow, trained).candidates
        if usual and best is not None and usual[0].layout != best.layout:
            guide, candidates = _with_usual(usual[0], candidates)
    said = {name for name in Wish.__slots__ if getattr(wish, name) is not None}
    said |= wish.kept.keys()
    said |= {"global_batch"} if batch_is_given else set()
    return Advice(
        framework=framework,
        framework_reason=why,
        guide=guide,
        candidates=[
            _described(hardware, item, best, {**inputs, **layout_inputs(item.layout, said, hardware)})
            for item in candidates
            if best is not None
        ],
        tried=found.tried,
        too_large=found.too_large,
        problem=None if best is not None else _problem(shape, hardware, global_batch, found),
        ways_out=list(ways_out(shape, hardware, wish, trained)) if found.smallest is not None else [],
    )


def _for_adapters(shape: ModelShape, wish: Wish) -> Wish:
    """Return a wish that splits no layers where adapters are trained and nobody asks for that: PEFT's do not."""
    if shape.lora is None or {wish.tensor, wish.pipeline, wish.context, wish.expert} != {None}:
        return wish
    return replace(wish, tensor=1, pipeline=1, context=1, expert=1)


def _with_usual(
    usual: LayoutCandidate, candidates: tuple[LayoutCandidate, ...]
) -> tuple[str, tuple[LayoutCandidate, ...]]:
    """Return candidates with the usual way for a size among them, and what there is to say of its place."""
    best, *rest = (item for item in candidates if item.layout != usual.layout)
    slower = usual.time.value / best.time.value - 1
    if slower <= MOST_SLOWER:
        text = _("only the size is given: the usual way for that size is shown first, then the fastest")
        return text, (usual, best, *rest)
    text = _("only the size is given: the usual way for that size is shown second, as a step takes {share} longer so")
    return text.format(share=_percent(slower)), (best, usual, *rest)


def within_framework(
    framework: Framework, shape: ModelShape, hardware: Hardware, global_batch: int, wish: Wish
) -> Found:
    """Return what a search comes to among the layouts that one framework can train in.

    Args:
        framework: the one.
        shape: the model.
        hardware: what there is.
        global_batch: sequences a step.
        wish: what is fixed; its degrees and its sharding are left aside.
    """
    bounds: list[Wish] = [
        replace(wish, data=None, tensor=1, pipeline=1, zero_stage=stage)
        for stage, spread in enumerate(_BY_ZERO_STAGE)
        if spread in framework.spreads
    ]
    free = replace(wish, data=None, tensor=None, pipeline=None, zero_stage=None)
    if Spread.TENSORS in framework.spreads:
        bounds.append(free)
    elif Spread.STAGES in framework.spreads:
        bounds.append(replace(free, tensor=1))
    trained = partial(_usually, shape, wish)
    found = [search(shape, hardware, global_batch, bound, trained) for bound in bounds]
    layouts = [item for one in found for item in one.candidates]
    able = [item for item in layouts if framework.name in frameworks_of(item.layout, item.shape)]
    least = [one.smallest for one in found if one.smallest is not None]
    return Found(
        tuple(sorted(able, key=lambda item: item.time.value)),
        sum(one.tried for one in found),
        sum(one.too_large for one in found),
        min(least, key=lambda item: item.memory.high) if least and not able else None,
    )


def _described(hardware: Hardware, item: LayoutCandidate, best: LayoutCandidate, inputs: Inputs) -> Recommendation:
    layout = item.layout
    return Recommendation(
        data_parallel_size=layout.data,
        tensor_parallel_size=layout.tensor,
        pipeline_parallel_size=layout.pipeline,
        context_parallel_size=layout.context,
        expert_parallel_size=layout.expert,
        virtual_stages=layout.virtual_stages,
        layers_less=-item.shape.layers % layout.pipeline,
        micro_batch=layout.micro_batch,
        global_batch=layout.global_batch,
        zero_stage=layout.zero_stage,
        recompute=layout.recompute,
        sequence_parallel=layout.sequence_parallel,
        slower_by=item.time.value / best.time.value - 1,
        frameworks=frameworks_of(layout, item.shape),
        reasons=reasons(hardware, item, best),
        estimate=describe(item.shape, layout, hardware, inputs, item.time, item.memory),
    )


@dataclass(frozen=True, slots=True)
class _Shares:
    """Parts of the step, 0 to 1."""

    tensor: float
    experts: float
    bubble: float
    data: float
    again: float


def _shares(item: LayoutCandidate) -> _Shares:
    parts, total = item.time.parts, item.time.value
    return _Shares(
        parts["tensor_parallel"] / total,
        parts["expert_parallel"] / total,
        (parts["pipeline_bubble"] + parts["pipeline_transfer"]) / total,
        parts["data_parallel"] / total,
        parts["recompute"] / total,
    )


def reasons(hardware: Hardware, item: LayoutCandidate, best: LayoutCandidate) -> list[str]:
    """Return what the parts of the step and of the memory say of a layout."""
    layout, share = item.layout, _shares(item)
    told = []
    memory = _("{high} of {memory} GB a GPU").format(
        high=f"{item.memory.high / GB:.1f}", memory=f"{hardware.gpu.memory_bytes / GB:.1f}"
    )
    told.append(memory)
    if item.memory.high > (1 - LEAST_SPARE) * hardware.gpu.memory_bytes:
        told.append(_("tight: less than {share} of the memory is spare").format(share=_percent(LEAST_SPARE)))
    if layout.tensor > 1:
        where = _("inside a node") if layout.tensor <= hardware.linked else _("across nodes, which is slow")
        told.append(
            _("tensor {degree} {where} takes {share} of the step").format(
                degree=layout.tensor, where=where, share=_percent(share.tensor)
            )
        )
    if layout.context > 1:
        told.append(
            _("each sequence over {degree} ranks: {tokens} tokens on each").format(
                degree=layout.context, tokens=f"{item.shape.seq_length // layout.context:,}"
            )
        )
    if layout.expert > 1:
        where = _("inside a node") if layout.expert * layout.tensor_of_experts <= hardware.linked else _("across nodes")
        text = _("experts over {degree} ranks {where}: what they are sent takes {share}")
        told.append(text.format(degree=layout.expert, where=where, share=_percent(share.experts)))
    if layout.pipeline > 1:
        told.append(
            _("pipeline {degree} idles and sends for {share} of it").format(
                degree=layout.pipeline, share=_percent(share.bubble)
            )
        )
    if share.data >= LEAST_TOLD:
        told.append(_("gradients take {share}").format(share=_percent(share.data)))
    if layout.recompute != "none":
        told.append(_("computing activations again takes {share}").format(share=_percent(share.again)))
    told.append(_("trained by {frameworks}").format(frameworks=", ".join(frameworks_of(layout, item.shape))))
    if item is not best:
        told += _against(item, best)
    return told


def _against(item: LayoutCandidate, best: LayoutCandidate) -> list[str]:
    """Name the part that costs most more than in the best layout."""
    names = {
        "compute": _("smaller matrices"),
        "recompute": _("more to compute again"),
        "host": _("more waiting for the host"),
        "tensor_parallel": _("more tensor-parallel traffic"),
        "context_parallel": _("more traffic of keys and values"),
        "expert_parallel": _("more traffic to experts and back"),
        "pipeline_transfer": _("more traffic between stages"),
        "pipeline_bubble": _("a larger bubble"),
        "data_parallel": _("more gradient traffic"),
        "optimizer": _("a longer optimizer step"),
    }
    extra = {name: item.time.parts[name] - best.time.parts[name] for name in names}
    worst = max(extra, key=lambda name: extra[name])
    slower = item.time.value / best.time.value - 1
    if extra[worst] <= 0 or slower <= 0:
        return []
    return [_("{share} slower than the fastest: {why}").format(share=_percent(slower), why=names[worst])]


def _problem(shape: ModelShape, hardware: Hardware, global_batch: int, found: Found) -> str:
    if found.smallest is not None:
        need = found.smallest.memory.high / GB
        text = _("training all of the model needs at least {need} GB a GPU, and a GPU has {memory} GB")
        if shape.attention == "plain":
            text = _(
                "training all of the model needs at least {need} GB a GPU, and a GPU has {memory} GB; say "
                "`attention: flash` where attention is fused"
            )
        return text.format(need=f"{need:.1f}", memory=f"{hardware.gpu.memory_bytes / GB:.1f}")
    text = _(
        "no degrees divide {gpus} GPUs, {heads} heads, {layers} layers and a global batch of {batch};"
        " take a batch that is a multiple of {gpus}"
    )
    return text.format(gpus=hardware.gpus, heads=shape.heads, layers=shape.layers, batch=global_batch)


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 or share == 0 else f"{share:.1%}"
