"""What Megatron's numbers have to divide: heads, layers, batches, sequences and the GPUs of a node. Pure numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dttui.frameworks.parts.batches import Batches, nearest_parts, nearest_totals, solve
from dttui.i18n import _
from dttui.spec.findings import Finding, error

_TENSOR, _BATCH = "strategy.tensor_parallel_size", "strategy.data_parallel.batch_size"
_MICRO, _CHUNKS = "strategy.pipeline_parallel.micro_batch_size", "strategy.pipeline_parallel.virtual_stages"


@dataclass(frozen=True)
class Shape:
    """A job's numbers, as Megatron has them; `None` for one that Megatron does not learn from the job."""

    slots: tuple[int, ...]
    """Ranks of each node."""
    tensor: int
    pipeline: int
    pipeline_key: str
    """The key that gives the pipeline degree."""
    context: int
    expert: int
    expert_tensor: int
    """Tensor parallel degree of experts."""
    chunks: int
    """Chunks of layers a rank."""
    layers: int | None
    heads: int | None
    seq_length: int | None
    sequence_parallel: bool
    batch: int | None
    """Samples a step."""
    micro_batch: int | None
    """Samples a micro-batch."""

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return sum(self.slots)

    @property
    def ranks_of_model(self) -> int:
        """Ranks that one copy of the model is spread over."""
        return self.tensor * self.pipeline * self.context

    @property
    def data(self) -> int:
        """Data parallel degree: what is left."""
        return max(self.world_size // self.ranks_of_model, 1)

    @property
    def batches(self) -> Batches | None:
        """Sizes of a step; `None` where those that are given cannot agree."""
        return solve(self.data, total=self.batch, micro=self.micro_batch, stages=self.pipeline)


def check_shape(shape: Shape) -> list[Finding]:
    """Return an error for each division that leaves a rest, with the nearest numbers that work.

    Degrees that do not divide the world size are for the plan to say, of whatever framework.
    """
    if shape.world_size % shape.ranks_of_model:
        return []
    checks = (_check_nodes, _check_heads, _check_layers, _check_batch, _check_sequence, _check_experts)
    return [finding for check in checks for finding in check(shape)]


def _check_nodes(shape: Shape) -> Iterator[Finding]:
    slots, tensor = shape.slots, shape.tensor
    if len(set(slots)) == 1 or not any(count % tensor for count in slots):
        return
    message = _("tensor {tensor} does not divide the GPUs of every node, and they are unequal: {counts}")
    message = message.format(tensor=tensor, counts=" + ".join(map(str, slots)))
    usable = range(min(slots) // tensor * tensor, 0, -tensor)
    fitting = next((count for count in usable if count * len(slots) % shape.ranks_of_model == 0), None)
    if fitting is not None:
        hint = _("Use {count} on each: resources.gpu.count.").format(count=fitting)
    else:
        hint = _what_fits({_TENSOR: (math.gcd(tensor, *slots),)})
    yield error("unequal-slots", _TENSOR, message, hint)


def _check_heads(shape: Shape) -> Iterator[Finding]:
    heads = shape.heads
    if heads is None or heads % shape.tensor == 0:
        return
    groups = shape.world_size // (shape.pipeline * shape.context)
    sizes = [size for size in range(1, groups + 1) if heads % size == 0 and groups % size == 0]
    message = _("{heads} heads cannot be divided by tensor {tensor}").format(heads=heads, tensor=shape.tensor)
    yield error("layout", _TENSOR, message, _what_fits({_TENSOR: _around(sizes, shape.tensor)}))


def _check_layers(shape: Shape) -> Iterator[Finding]:
    layers, pipeline, chunks = shape.layers, shape.pipeline, shape.chunks
    if chunks > 1 and pipeline == 1:
        yield error("layout", _CHUNKS, _("chunks of layers need a pipeline of two stages or more"))
        return
    if layers is None or layers % (pipeline * chunks) == 0:
        return
    groups = shape.world_size // (shape.tensor * shape.context)
    stages = [size for size in range(1, groups + 1) if groups % size == 0 and layers % (size * chunks) == 0]
    if chunks > 1:
        stages = [size for size in stages if size > 1]
    parts = [size for size in range(2, layers + 1) if layers % (pipeline * size) == 0] if chunks > 1 else []
    message = _("{layers} layers cannot be divided by pipeline {pipeline} × {chunks} chunks")
    message = message.format(layers=layers, pipeline=pipeline, chunks=chunks)
    hint = _what_fits({shape.pipeline_key: _around(stages, pipeline), _CHUNKS: _around(parts, chunks)})
    yield error("layout", shape.pipeline_key, message, hint)


def _check_batch(shape: Shape) -> Iterator[Finding]:
    batch, micro, data, pipeline = shape.batch, shape.micro_batch, shape.data, shape.pipeline
    batches = shape.batches
    if batch is not None and batches is None:
        used = micro or (max(batch // data, 1) if pipeline == 1 else 1)
        message = _("the global batch {batch} cannot be divided by data {data} × micro-batch {micro}")
        parts = nearest_parts(data, total=batch, part=micro) if micro is not None else ()
        choices = {_BATCH: nearest_totals(data, total=batch, micro=micro), _MICRO: parts}
        yield error("layout", _BATCH, message.format(batch=batch, data=data, micro=used), _what_fits(choices))
    elif batches is not None and shape.chunks > 1 and batches.steps % pipeline:
        message = _("the interleaved schedule needs the {count} micro-batches to be a multiple of pipeline {pipeline}")
        totals = nearest_totals(data * pipeline, total=batches.total, micro=batches.micro)
        message = message.format(count=batches.steps, pipeline=pipeline)
        yield error("layout", _BATCH, message, _what_fits({_BATCH: totals}))


def _check_sequence(shape: Shape) -> Iterator[Finding]:
    context, length = shape.context, shape.seq_length
    splits = [(_("context {context}").format(context=context), 2 * context)] if context > 1 else []
    if shape.sequence_parallel and shape.tensor > 1:
        splits.append(("sequence_parallel", context * shape.tensor))
    unit = math.lcm(*(least for _split, least in splits))
    for split, least in splits:
        if length is not None and length % least:
            message = _("{split} needs sequences of a multiple of {unit} tokens, not {length}")
            lengths = tuple(size for size in (length // unit * unit, length // unit * unit + unit) if size)
            hint = _what_fits({"model.seq_length": lengths})
            message = message.format(split=split, unit=least, length=length)
            yield error("layout", "model.seq_length", message, hint)


def _check_experts(shape: Shape) -> Iterator[Finding]:
    degrees = {_("expert"): shape.expert, _("tensor"): shape.expert_tensor, _("pipeline"): shape.pipeline}
    product = math.prod(degrees.values())
    if shape.expert == 1 or shape.world_size % product == 0:
        return
    message = _("{degrees} takes {product} ranks, which does not divide the {world_size} of the chosen nodes")
    told = " × ".join(f"{name} {value}" for name, value in degrees.items())
    groups, rest = divmod(shape.world_size, shape.expert_tensor * shape.pipeline)
    sizes = [] if rest else [size for size in range(1, groups + 1) if groups % size == 0]
    key = "framework_options.expert_parallel_size"
    message = message.format(degrees=told, product=product, world_size=shape.world_size)
    yield error("degrees", key, message, _what_fits({key: _around(sizes, shape.expert)}))


def _around(sizes: Iterable[int], wanted: int) -> tuple[int, ...]:
    """Return the nearest of `sizes` below and above `wanted`."""
    known = list(sizes)
    below, above = (max((s for s in known if s < wanted), default=0), min((s for s in known if s > wanted), default=0))
    return tuple(size for size in (below, above) if size)


def _what_fits(choices: dict[str, tuple[int, ...]]) -> str:
    between = _(" or ")
    told = [f"{key}: {between.join(map(str, sizes))}" for key, sizes in choices.items() if sizes]
    return _("What fits is {choices}.").format(choices="; ".join(told)) if told else ""
