"""Which degrees would suit a job best: the search over its own model and nodes, and what to write for its outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dttui.frameworks import get_framework, traits_of
from dttui.i18n import _
from dttui.planning.cost.assumptions import Inputs
from dttui.planning.cost.correction import Learned
from dttui.planning.cost.estimate import GB
from dttui.planning.cost.hardware import GpuTable, Hardware
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.layout_search import Wish
from dttui.planning.cost.links import Links
from dttui.planning.cost.recommend import (
    Advice,
    JobAdvice,
    Recommendation,
    frameworks_of,
    recommend,
    usual_global_batch,
    within_framework,
)
from dttui.planning.cost.shape import ModelShape
from dttui.planning.costing import cost, laid_out, model_shape, overlaps
from dttui.planning.roster import Member
from dttui.planning.uncounted import not_counted
from dttui.spec.entry_points import COMMAND
from dttui.spec.findings import Finding
from dttui.spec.models import DataParallel, Job, ModelParallel, PipelineParallel, Section, Strategy

_LAYERS_LESS = ("account_for_loss_in_pipeline_split", "account_for_embedding_in_pipeline_split")
"""Arguments by which Megatron-LM gives the last stage a layer less, and the first."""
_LEAST_LONGER = 0.005
"""Share of a step that reads as more than nothing."""
SectionT = TypeVar("SectionT", bound=Section)


def advise_job(
    job: Job,
    members: Sequence[Member],
    table: GpuTable,
    links: Links | None = None,
    wish: Wish | None = None,
    global_batch: int | None = None,
    learned: Mapping[str, Learned] | None = None,
) -> tuple[JobAdvice | None, list[Finding]]:
    """Return the layouts that would run a job's model on its nodes; else why nothing can be said.

    Args:
        job: its degrees are left aside; its batch and precision count.
        members: its nodes.
        table: types of GPUs.
        links: what was measured between zones and hosts.
        wish: what is fixed beforehand, besides.
        global_batch: sequences a step, instead of the job's.
        learned: name of a type of GPU → what jobs have shown of hosts that have it.
    """
    batches = job.strategy.data_parallel
    bare = job.model_copy(update={"strategy": Strategy(data_parallel=batches)})
    costing, findings = cost(bare, members, table, links, learned)
    if costing is None:
        return None, findings
    given = global_batch or (batches.batch_size if batches is not None else None)
    batch = given or usual_global_batch(costing.shape, costing.hardware)
    inputs = {name: item for name, item in costing.estimate.inputs.items() if not name.startswith("layout.")}
    wish = wish or Wish(precision=job.model.precision if job.model is not None else None)
    advice = recommend(
        costing.shape,
        costing.hardware,
        batch,
        inputs,
        wish,
        batch_is_given=given is not None,
        trained=_Ways(bare, wish.kept),
    )
    advice = _with_gaps(advice, bare)
    hardware = costing.hardware
    kinds = Counter(gpu.name for gpu in costing.types)
    found = JobAdvice(
        advice,
        hardware.gpus,
        hardware.gpu.name,
        batch,
        given is not None,
        shape_is_given(inputs),
        job.framework,
        gpu_types=kinds if len(kinds) > 1 else {},
    )
    staying = _staying(found, costing.shape, hardware, wish)
    return replace(found, staying=staying), []


def _staying(found: JobAdvice, shape: ModelShape, hardware: Hardware, wish: Wish) -> str | None:
    """Return what the job's framework can do itself, where the first layout takes another one."""
    framework, candidates = found.framework, found.advice.candidates
    if framework is None or not candidates or framework_of(framework, candidates[0].frameworks) == framework:
        return None
    own = within_framework(get_framework(framework), shape, hardware, found.global_batch, wish)
    if own.candidates:
        best = own.candidates[0]
        longer = best.time.value / candidates[0].estimate.step_time_s.value - 1
        text = _(
            "With {framework} a step takes {share} longer than in the first: "
            "DP {data} · TP {tensor} · PP {pipeline} · ZeRO {stage}."
        )
        if longer < _LEAST_LONGER:
            text = _(
                "With {framework} a step takes as long as in the first: "
                "DP {data} · TP {tensor} · PP {pipeline} · ZeRO {stage}."
            )
        layout = best.layout
        return text.format(
            framework=framework,
            share=f"{longer:.0%}",
            data=layout.data,
            tensor=layout.tensor,
            pipeline=layout.pipeline,
            stage=layout.zero_stage,
        )
    if own.smallest is None:
        return None
    text = _("{framework} cannot hold this model here: it needs {need} GB a GPU at least, and a GPU has {room}.")
    need, room = own.smallest.memory.high / GB, hardware.gpu.memory_bytes / GB
    return text.format(framework=framework, need=f"{need:.0f}", room=f"{room:.0f}")


@dataclass(frozen=True)
class _Way:
    """A job as one framework would train it."""

    shape: ModelShape
    laid_out: Mapping[str, Any]
    """What of a layout the framework's options say."""
    overlaps: tuple[tuple[bool, bool], ...]
    """Whether gradients hide behind computing, and tensor-parallel traffic, by ZeRO stage."""


@dataclass(frozen=True)
class _Ways:
    """A job as each framework would train it, those that can take its place; filled as they are asked for."""

    job: Job
    kept: Mapping[str, Any]
    """What is fixed besides, of `KEPT`."""
    known: dict[str | None, _Way] = field(default_factory=dict)

    def __call__(self, layout: Layout) -> tuple[ModelShape, Layout]:
        """Return the model and a layout as the job's framework trains, or the one that would take its place."""
        way = self._by(framework_of(self.job.framework, frameworks_of(layout)))
        overlap, tensor_overlap = way.overlaps[layout.zero_stage]
        told = {**way.laid_out, "overlap": overlap, "tensor_overlap": tensor_overlap}
        if layout.expert > 1:
            told["expert_tensor"] = layout.expert_tensor
        return way.shape, replace(layout, **told)

    def _by(self, framework: str | None) -> _Way:
        if framework not in self.known:
            job = self.job
            if framework != job.framework:
                job = job.model_copy(update={"framework": framework, "framework_options": {}})
            stages = tuple(overlaps(job, stage) for stage in range(4))
            self.known[framework] = _Way(model_shape(job)[0], {**laid_out(job), **self.kept}, stages)
        return self.known[framework]


def shape_is_given(inputs: Inputs) -> bool:
    """Whether it is said how many layers a model has, and how wide they are, or it is no transformer."""
    return "model.operations" in inputs or all(
        inputs[f"model.{name}"].source == "declared" for name in ("layers", "hidden_size")
    )


def _with_gaps(advice: Advice, job: Job) -> Advice:
    """Name in each candidate what is not counted of the job as it would be then; another framework has its own."""
    known: dict[str | None, list[str]] = {job.framework: not_counted(job)}
    told = []
    for item in advice.candidates:
        framework = framework_of(job.framework, item.frameworks)
        if framework not in known:
            known[framework] = not_counted(job.model_copy(update={"framework": framework, "framework_options": {}}))
        estimate = item.estimate.model_copy(update={"not_counted": known[framework]})
        told.append(item.model_copy(update={"estimate": estimate}))
    return advice.model_copy(update={"candidates": told})


def with_recommendation(strategy: Strategy, chosen: Recommendation) -> Strategy:
    """Return a strategy with the degrees, batches and schedule of a recommendation; what else it says stays.

    Of the places that can give the pipeline degree one is left, so that none contradicts it.
    """
    interleaved = chosen.virtual_stages > 1
    schedule = "Interleaved" if interleaved else "1F1B"
    sections = {
        "data_parallel": _changed(strategy.data_parallel, DataParallel, batch_size=chosen.global_batch),
        "pipeline_parallel": _changed(
            strategy.pipeline_parallel,
            PipelineParallel,
            micro_batch_size=chosen.micro_batch,
            pipeline_stages=None,
            schedule=schedule if chosen.pipeline_parallel_size > 1 else None,
            virtual_stages=chosen.virtual_stages if interleaved else None,
        ),
        "model_parallel": _changed(strategy.model_parallel, ModelParallel, pipeline_stages=None),
    }
    return _changed(
        strategy,
        Strategy,
        type=_kind(chosen),
        data_parallel_size=chosen.data_parallel_size,
        tensor_parallel_size=chosen.tensor_parallel_size,
        pipeline_parallel_size=chosen.pipeline_parallel_size,
        zero_stage=chosen.zero_stage,
        recomputation=chosen.recompute,
        sequence_parallel=chosen.sequence_parallel if chosen.tensor_parallel_size > 1 else None,
        **{name: section if given_fields(section) else None for name, section in sections.items()},
    )


def edit_of(job: Job, chosen: Recommendation) -> dict[str, Any]:
    """Return what a job has to say for a recommendation to be taken, as data: its strategy, and another framework.

    Another framework knows none of the options of the one before.
    """
    strategy = {"strategy": with_recommendation(job.strategy, chosen).model_dump(mode="json", exclude_unset=True)}
    framework = framework_of(job.framework, chosen.frameworks)
    named = {"framework": framework} if framework != job.framework else {}
    kept = {} if named else job.framework_options
    options = with_spread(kept, framework, chosen)
    told = {"framework_options": options} if options != job.framework_options else {}
    return {**named, **told, **strategy}


def with_spread(options: Mapping[str, Any], framework: str | None, chosen: Recommendation) -> dict[str, Any]:
    """Return options of a framework with the degrees of a recommendation that only they can say.

    Where layers do not come out even, Megatron-LM is told that embedding and output layer count as one each.
    """
    traits = traits_of(framework)
    degrees = {
        traits.context_option: chosen.context_parallel_size,
        traits.expert_option: chosen.expert_parallel_size,
    }
    told = {**options, **{name: degree for name, degree in degrees.items() if name and (degree > 1 or name in options)}}
    switches = {}
    if traits.expert_option is not None:
        if chosen.expert_parallel_size > 1 and chosen.tensor_parallel_size > 1:
            switches["expert_tensor_parallel_size"] = 1
        switches |= dict.fromkeys(_LAYERS_LESS[: chosen.layers_less], True)
    if switches:
        told["arguments"] = {**told.get("arguments", {}), **switches}
    return told


def framework_of(framework: str | None, able: Sequence[str]) -> str | None:
    """Return the framework that trains in a layout: the job's where it can, or may, or the usual one that is there.

    Args:
        framework: the job's.
        able: those that can, the usual one first.
    """
    if framework in (None, COMMAND, *able):
        return framework
    return next((name for name in able if get_framework(name).available), able[0] if able else framework)


def check_framework(framework: str | None, chosen: Recommendation) -> str | None:
    """Return what to say where a job's framework cannot train in a layout; `None` where it can, or may."""
    usual = framework_of(framework, chosen.frameworks)
    if usual is None or usual == framework:
        return None
    reason = _("{framework} does not split layers: set framework: {usual}")
    if chosen.tensor_parallel_size == chosen.pipeline_parallel_size == 1:
        reason = _("{framework} does not train with ZeRO {stage}: set framework: {usual}")
    told = reason.format(framework=framework, usual=usual, stage=chosen.zero_stage)
    if not get_framework(usual).available:
        told += _("; this version of dttui cannot launch it yet")
    return told


def _kind(chosen: Recommendation) -> str:
    kinds = {
        "data_parallel": chosen.data_parallel_size,
        "model_parallel": chosen.tensor_parallel_size,
        "pipeline_parallel": chosen.pipeline_parallel_size,
    }
    used = [name for name, degree in kinds.items() if degree > 1]
    return used[0] if len(used) == 1 else "hybrid" if used else "data_parallel"


def _changed(section: SectionT | None, model: type[SectionT], **parts: Any) -> SectionT:
    """Return a section with other values; `None` says nothing of a key."""
    given = (given_fields(section) if section is not None else {}) | parts
    return model(**{name: value for name, value in given.items() if value is not None})


def given_fields(section: Section) -> dict[str, Any]:
    """Return the fields that a section gives."""
    return {name: value for name in section.model_fields_set if (value := getattr(section, name)) is not None}
