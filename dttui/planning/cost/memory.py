"""Memory of one GPU, as a range: ZeRO's model states (Rajbhandari et al. 2020), Korthikanti et al.'s activations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from dttui.i18n import _
from dttui.planning.cost.activations import activation_bytes_per_layer, recomputed_bytes
from dttui.planning.cost.adapters import adapter_parameters, frozen_bytes, widest_product
from dttui.planning.cost.hardware import Hardware
from dttui.planning.cost.layout import OFFLOADED, Layout, stage_layers
from dttui.planning.cost.optimizers import moment_bytes
from dttui.planning.cost.shape import ModelShape
from dttui.planning.cost.unfused import backward_bytes, cast_bytes, gathered_bytes, loss_bytes

CONTEXT_BYTES = (0.6e9, 1.6e9)
"""CUDA context with its kernels, and NCCL's buffers: least and most that is usual."""
FRAGMENTATION = 0.08
"""Share that the allocator may hold without using it; the range's upper end has it."""
GATHERED_LAYERS = 2
"""Layers whose parameters a fully sharded rank holds whole: the one at work and the one fetched ahead."""
LOSS_COPIES = 1.5
"""What the loss may hold besides the logits in fp32, in their size: the half-precision original and the gradient."""
BUCKET_BYTES = 25 * 2**20
"""A gradient bucket of PyTorch's DDP; two are under way."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Memory of the GPU that needs most, in bytes."""

    parts: dict[str, float]
    """What it is made of; sums up to `low`."""
    high: float
    """With the largest usual context and a fragmented allocator."""
    host_bytes: float
    """What offloading puts into the host's memory, a GPU."""

    @property
    def low(self) -> float:
        """Sum of the parts."""
        return sum(self.parts.values())


def leaves_out() -> list[str]:
    """Name what the estimate does not count."""
    return [
        _("the framework's own temporary buffers beyond gradient buckets"),
        _("activations kept by fused or custom kernels in other ways than Megatron-LM's"),
        _("data loading and evaluation on the GPU"),
        _("other processes on the same GPU"),
    ]


def memory_per_gpu(shape: ModelShape, layout: Layout) -> MemoryEstimate:
    """Return what the first, the second or the last stage needs, whichever is most."""
    first, middle, last = stage_layers(shape.layers, layout)
    places = {(first, True, layout.pipeline == 1)}
    if layout.pipeline > 1:
        places.add((last, False, True))
    if layout.pipeline > 2 and middle > first:
        places.add((middle, False, False))
    layer = activation_bytes_per_layer(shape, layout), recomputed_bytes(shape, layout)
    stages = [_stage(shape, layout, layer, layers, is_first, is_last) for layers, is_first, is_last in places]
    return max(stages, key=lambda estimate: estimate.high)


def memory_on(shape: ModelShape, layout: Layout, hardware: Hardware) -> MemoryEstimate:
    """Return the same, corrected by what jobs have held on such hosts, where that is known."""
    found = memory_per_gpu(shape, layout)
    learned = hardware.correction.memory if hardware.correction is not None else None
    if learned is None:
        return found
    parts = {name: size * learned.factor for name, size in found.parts.items()}
    parts["context"] += learned.offset_bytes
    return replace(found, parts=parts, high=sum(parts.values()) * (1 + learned.spread))


@dataclass(frozen=True, slots=True)
class Held:
    """Parameters of one rank that have gradients, before sharding, and those beside that are frozen."""

    shared: float
    """Those that all replicas have."""
    experts: float
    """Those of its experts."""
    frozen_bytes: float = 0.0

    @property
    def total(self) -> float:
        """Both."""
        return self.shared + self.experts

    def sharded(self, layout: Layout) -> float:
        """How many of them ZeRO leaves to a rank: experts are shared out among those that have the same ones."""
        return self.shared / layout.shard_ranks + self.experts / min(layout.shard_ranks, layout.expert_replicas)


def held_parameters(shape: ModelShape, layout: Layout, layers: float, *, is_first: bool, is_last: bool) -> Held:
    """Return how many parameters a rank of a stage with so many layers holds, tensors and experts split.

    The last one has the output layer, or a copy of the embedding where that is shared. Beside adapters all is frozen.
    """
    experts = layers * shape.expert_weights
    own = shape.layer_parameters * layers - experts
    if is_first:
        own += shape.embedding_parameters
    if is_last:
        own += shape.output_parameters or (0.0 if is_first else shape.embedding_parameters)
    held = Held(own / layout.tensor, experts / (layout.expert * layout.tensor_of_experts))
    if shape.lora is None:
        return held
    frozen = frozen_bytes(shape, own + experts, layout, layers) * held.total / (own + experts)
    return Held(layers * adapter_parameters(shape) / layout.tensor, 0.0, frozen)


def model_states(held: Held, layout: Layout) -> tuple[float, float, float]:
    """Return bytes of parameters, gradients and optimizer states of a rank that holds so many parameters.

    ZeRO stage 1 shards optimizer states over the replicas, stage 2 gradients too, stage 3 all three. Parameters that
    are kept after the forward pass are whole at the peak.
    """
    stage, sharded = layout.zero_stage, held.sharded(layout)
    is_split = stage >= 3 and layout.reshard
    frozen = held.frozen_bytes / (layout.shard_ranks if is_split else 1)
    second = 0.0
    if is_split and layout.secondary_shard is not None:
        second = held.total * layout.bytes_per_parameter / layout.secondary_shard
    return (
        (sharded if is_split else held.total) * layout.bytes_per_kept_parameter + frozen + second,
        (sharded if stage >= 2 else held.total) * layout.bytes_per_gradient,
        (sharded if stage >= 1 else held.total) * layout.bytes_per_optimizer_state,
    )


def layers_in_flight(shape: ModelShape, layout: Layout) -> float:
    """Return how many layers' activations the first stage holds: L·(1 + (p−1)/(p·v)) when interleaved.

    With 1F1B the first stage has p micro-batches of L/p layers under way, or as many as there are; GPipe has them all;
    ZB-H2 has 2p−1, ZB-H1 and ZB-V have as many as 1F1B.
    """
    p, v, m = layout.pipeline, layout.virtual_stages, layout.micro_batches
    per_stage = ceil(shape.layers / p)
    if p == 1:
        return float(shape.layers)
    if v > 1 and layout.schedule == "1F1B":
        return shape.layers * (1 + (p - 1) / (p * v))
    most = {"GPipe": m, "ZB-H2": 2 * p - 1}.get(layout.schedule, p)
    return float(per_stage * min(m, most))


def _stage(
    shape: ModelShape, layout: Layout, layer: tuple[float, float], layers: int, is_first: bool, is_last: bool
) -> MemoryEstimate:
    """Return what a stage of so many layers needs; `layer` is what one keeps, and holds while it is computed again."""
    tensor, pipeline = layout.tensor, layout.pipeline
    held = held_parameters(shape, layout, layers, is_first=is_first, is_last=is_last)
    parameters, gradients, optimizer = model_states(held, layout)
    s, b, h = shape.seq_length / layout.context, layout.micro_batch, shape.hidden_size
    in_flight = layers_in_flight(shape, layout) * layers / ceil(shape.layers / pipeline)
    if is_last and not is_first:
        in_flight = float(layers)
    elif not is_first:
        in_flight *= max(pipeline - 1, 1) / pipeline
    activations = in_flight * layer[0]
    shard = tensor if layout.sequence_parallel else 1
    logits = loss_bytes(shape, layout) if is_last else 0.0
    again = layer[1] + backward_bytes(shape, layout)
    kept = 0.0 if layout.offload_activations else activations
    casts = _casts(shape, layout, logits, again, is_last=is_last)
    gathered = _gathered(shape, layout, logits, again, kept)
    buckets = held.total * layout.bytes_per_gradient if layout.bucketed else 2 * BUCKET_BYTES
    passing = kept + max(logits, again) + casts + gathered
    parts = {
        "parameters": parameters,
        "gradients": gradients,
        "optimizer": optimizer,
        "activations": activations,
        "embedding": s * b * h * min(pipeline, layout.micro_batches) / shard if is_first and shape.dropout else 0.0,
        "logits": logits,
        # The loss is over and its memory free by the time of the last layer's backward pass.
        "recomputation": max(again - logits, 0.0),
        "casts": casts,
        "gathered": gathered,
        "update": max(_update_bytes(held, layout) - passing, 0.0),
        "buckets": buckets if layout.replicas > 1 else 0.0,
        "context": CONTEXT_BYTES[0],
    }
    away = OFFLOADED[layout.offload] | ({"activations"} if layout.offload_activations else set())
    host = sum(parts[name] for name in away)
    parts |= dict.fromkeys(away, 0.0)
    low = sum(parts.values())
    copies = parts["logits"] * LOSS_COPIES if layout.fused else 0.0
    high = (low - parts["context"] + copies) * (1 + FRAGMENTATION) + CONTEXT_BYTES[1]
    return MemoryEstimate(parts, high, host)


def _casts(shape: ModelShape, layout: Layout, logits: float, again: float, *, is_last: bool) -> float:
    """What weights take in the precision that is computed in, where they are kept in another."""
    if shape.lora is not None and shape.lora.bits is not None:
        return widest_product(shape) / layout.tensor * layout.bytes_per_parameter
    return cast_bytes(shape, layout, logits, again, is_last=is_last)


def _update_bytes(held: Held, layout: Layout) -> float:
    """What torch's Adam takes besides for a while, when activations are gone: a root of a moment, of all parameters."""
    if layout.fused or layout.optimizer != "adam" or OFFLOADED[layout.offload] & {"optimizer"}:
        return 0.0
    parameters = held.sharded(layout) if layout.zero_stage >= 1 else held.total
    return parameters * moment_bytes(layout.optimizer, layout.weights) / 2


def _gathered(shape: ModelShape, layout: Layout, logits: float, again: float, activations: float) -> float:
    """What a rank that keeps a share, or nothing, of the parameters holds whole for a while.

    Parameters of two layers and the gradients of one; of PyTorch's own sharding what `gathered_bytes` says.
    """
    is_sharded = layout.zero_stage >= 3 and layout.shard_ranks > 1
    if is_sharded and not layout.fused:
        return gathered_bytes(shape, layout, logits, again, activations)
    if not is_sharded and "parameters" not in OFFLOADED[layout.offload]:
        return 0.0
    experts = shape.expert_weights
    layer = (shape.layer_parameters - experts) / layout.tensor + experts / (layout.expert * layout.tensor_of_experts)
    layer = max(layer, shape.embedding_parameters / layout.tensor)
    gradient = layout.bytes_per_gradient if shape.lora is None else 0
    copies = GATHERED_LAYERS if layout.reshard else 0
    return layer * (copies * layout.bytes_per_parameter + gradient)
