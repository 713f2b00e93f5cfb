"""Search all feasible layouts of a model on some hardware, and rank them by predicted step time, with reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isqrt
from typing import Any, TypeAlias, get_args

from dttui.planning.cost.hardware import Hardware, Precision, usual_precision
from dttui.planning.cost.layer_time import LayerTime, layer_time
from dttui.planning.cost.layout import Fault, Layout, Recompute, faults
from dttui.planning.cost.memory import MemoryEstimate, memory_on
from dttui.planning.cost.shape import ModelShape
from dttui.planning.cost.step_time import TimeEstimate, step_time

Trained: TypeAlias = Callable[[Layout], tuple[ModelShape, Layout]]
"""Returns the model and a layout as what trains in it has them: dropout or none, what hides behind computing."""
LEAST_TOKENS = 2048
"""Of a sequence on each of the ranks that share it out; with fewer, attention does not cover their traffic."""
MAX_MICRO_BATCH = 64
"""Sequences; with more, matrix products gain nothing further and activations only grow."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is fixed beforehand; `None` is searched."""

    data: int | None = None
    tensor: int | None = None
    pipeline: int | None = None
    virtual_stages: int | None = None
    micro_batch: int | None = None
    zero_stage: int | None = None
    recompute: Recompute | None = None
    sequence_parallel: bool | None = None
    precision: Precision | None = None
    """Not searched: the GPU's usual one where nothing is said."""
    context: int | None = None
    expert: int | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)
    """Nor are these: fields of `Layout` of which `KEPT` has the names."""


@dataclass(frozen=True, slots=True)
class LayoutCandidate:
    """A layout with what it costs."""

    shape: ModelShape
    """The model as it is trained so."""
    layout: Layout
    time: TimeEstimate
    memory: MemoryEstimate


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to."""

    candidates: tuple[LayoutCandidate, ...]
    """The best of each (tensor, pipeline), the fastest first; all fit."""
    tried: int
    """Layouts that can be."""
    too_large: int
    """How many of them need more memory than a GPU has."""
    smallest: LayoutCandidate | None
    """Where none fits: the one that needs least memory."""


def search(
    shape: ModelShape, hardware: Hardware, global_batch: int, wish: Wish | None = None, trained: Trained | None = None
) -> Found:
    """Return the best layouts. Exhaustive over degrees, micro-batch, chunks, recomputation, sharding.

    Args:
        shape: the model.
        hardware: what there is.
        global_batch: sequences a step.
        wish: what is fixed.
        trained: how a layout is trained in; `None` for as it is.
    """
    wish = wish or Wish()
    wish = replace(wish, precision=wish.precision or usual_precision([hardware.gpu]))
    best: dict[tuple[int, int], LayoutCandidate] = {}
    smallest: LayoutCandidate | None = None
    tried = too_large = 0
    layers: dict[tuple[object, ...], LayerTime] = {}
    for found in layouts(shape, hardware, global_batch, wish):
        model, layout = trained(found) if trained is not None else (shape, found)
        tried += 1
        memory = memory_on(model, layout, hardware)
        if memory.high > hardware.gpu.memory_bytes:
            too_large += 1
            if smallest is None or memory.high < smallest.memory.high:
                smallest = LayoutCandidate(model, layout, step_time(model, layout, hardware), memory)
            continue
        split = (layout.tensor, layout.context, layout.expert)
        key = (model, split, layout.micro_batch, layout.recompute, layout.sequence_parallel)
        if key not in layers:
            layers[key] = layer_time(model, layout, hardware)
        time = step_time(model, layout, hardware, layers[key])
        pair = (layout.tensor, layout.pipeline)
        if pair not in best or time.value < best[pair].time.value:
            best[pair] = LayoutCandidate(model, layout, time, memory)
    ranked = tuple(sorted(best.values(), key=lambda item: item.time.value))
    return Found(ranked, tried, too_large, None if ranked else smallest)


def layouts(shape: ModelShape, hardware: Hardware, global_batch: int, wish: Wish) -> Iterator[Layout]:
    """Yield every layout that can be and agrees with the wish, whether or not it fits into memory."""
    for tensor in _degrees(wish.tensor, hardware.gpus):
        if shape.heads % tensor or (wish.tensor is None and tensor > hardware.linked):
            continue
        for pipeline in _degrees(wish.pipeline, hardware.gpus // tensor):
            for context in _contexts(shape, wish, hardware.gpus // (tensor * pipeline)):
                data = hardware.gpus // (tensor * pipeline * context)
                if tensor * pipeline * context * data != hardware.gpus or wish.data not in (None, data):
                    continue
                degrees = Layout(data, tensor, pipeline, global_batch=global_batch, context=context)
                for expert in _experts(shape, wish, degrees, hardware.linked):
                    spread = degrees if expert == 1 else replace(degrees, expert=expert, expert_tensor=1)
                    yield from _with_degrees(shape, hardware, spread, wish)


def _contexts(shape: ModelShape, wish: Wish, ranks: int) -> Iterator[int]:
    """Powers of two that leave each rank enough of a sequence, or the one that is fixed."""
    if wish.context is not None:
        yield wish.context
        return
    context = 1
    while context == 1 or (ranks % context == 0 and shape.seq_length >= context * LEAST_TOKENS):
        yield context
        context *= 2


def _experts(shape: ModelShape, wish: Wish, degrees: Layout, linked: int) -> list[int]:
    """Ranks that may share out the experts: none, most of those that one node's link joins, and most of all."""
    if wish.expert is not None or shape.experts is None:
        return [wish.expert or 1]
    ranks = degrees.replicas * degrees.tensor
    able = [count for count in _degrees(None, shape.experts) if ranks % count == 0]
    return sorted({1, max(count for count in able if count <= linked), max(able)})


def _with_degrees(shape: ModelShape, hardware: Hardware, degrees: Layout, wish: Wish) -> Iterator[Layout]:
    if next(_degree_faults(shape, hardware, degrees), None) is not None:
        return
    sequence = wish.sequence_parallel if wish.sequence_parallel is not None else degrees.tensor > 1
    stages = _zero_stages(shape, degrees) if wish.zero_stage is None else (wish.zero_stage,)
    share, rest = divmod(degrees.global_batch, degrees.data)
    sizes: Iterable[int] = range(1, MAX_MICRO_BATCH + 1) if shape.convolutions is None else _degrees(None, share or 1)
    if wish.micro_batch is not None:
        sizes = (wish.micro_batch,)
    for micro in sizes:
        if rest or share % micro or micro > share:
            continue
        for chunks in _chunks(shape, degrees, micro, wish):
            for recompute in (wish.recompute,) if wish.recompute else get_args(Recompute):
                for stage in stages:
                    yield Layout(
                        degrees.data,
                        degrees.tensor,
                        degrees.pipeline,
                        chunks,
                        micro,
                        degrees.global_batch,
                        stage,
                        recompute,
                        sequence,
                        wish.precision or "bf16",
                        context=degrees.context,
                        expert=degrees.expert,
                        expert_tensor=degrees.expert_tensor,
                        **wish.kept,
                    )


def _degree_faults(shape: ModelShape, hardware: Hardware, degrees: Layout) -> Iterator[Fault]:
    """Say what is wrong with the degrees alone: with the smallest batch that they divide."""
    alone = replace(degrees, global_batch=degrees.data)
    return faults(alone, shape, hardware.gpus, hardware.gpus_per_node)


def _zero_stages(shape: ModelShape, degrees: Layout) -> tuple[int, ...]:
    """Sharding that goes with the degrees: whoever splits or shares out anything shards optimizer states at most.

    Of convolutions what they keep for the backward pass is nearly all, and no sharding has a share in that.
    """
    if degrees.replicas == 1 or shape.convolutions is not None:
        return (0,)
    return (0, 1) if degrees.tensor * degrees.pipeline * degrees.context * degrees.expert > 1 else (0, 1, 2, 3)


def _chunks(shape: ModelShape, degrees: Layout, micro: int, wish: Wish) -> Iterator[int]:
    if degrees.pipeline == 1:
        if wish.virtual_stages in (None, 1):
            yield 1
        return
    micro_batches = degrees.global_batch // (degrees.data * micro)
    per_stage = -(-shape.layers // degrees.pipeline)
    for chunks in _degrees(wish.virtual_stages, per_stage):
        if per_stage % chunks == 0 and (chunks == 1 or micro_batches % degrees.pipeline == 0):
            yield chunks


def _degrees(fixed: int | None, of: int) -> list[int]:
    """Divisors of a number, or the one that is fixed."""
    if fixed is not None:
        return [fixed]
    small = [number for number in range(1, isqrt(of) + 1) if of % number == 0]
    return small + [of // number for number in reversed(small) if number * number != of]
