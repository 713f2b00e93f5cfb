"""Time of one training step: matrix products and memory traffic of a layer, collectives, pipeline, optimizer.

Messages are those of Megatron-LM (Narayanan et al. 2021, Korthikanti et al. 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from dttui.planning.cost.activations import activation_bytes_per_layer
from dttui.planning.cost.collectives import all_gather_s, all_reduce_s, group_link
from dttui.planning.cost.hardware import Hardware, Interconnect
from dttui.planning.cost.kernels import Kernels
from dttui.planning.cost.layer_time import LayerTime, layer_time
from dttui.planning.cost.layout import OFFLOADED, Layout, stage_layers
from dttui.planning.cost.memory import Held, held_parameters
from dttui.planning.cost.optimizers import moment_bytes
from dttui.planning.cost.shape import ModelShape

OVERLAP = 0.4
"""Share of what ZeRO-2 and 3 send each micro-batch that hides behind computing. FSDP hides nearly all of it (Zhao et
al. 2023), DeepSpeed's first ZeRO-3 hid nothing (Narayanan et al. 2021, Table 2): the range goes from one to the other.
This share and the next three are fitted to bench/measured_runs/fit.yaml, by least mean absolute error."""
GRADIENT_OVERLAP = 0.35
"""Share of gradients reduced once a step that hides behind the last backward pass, where a framework overlaps them."""
CHUNK_OVERLAP = 0.8
"""Share of what chunks of layers send to the next stage that hides behind computing, likewise."""
TENSOR_OVERLAP = 0.8
"""Share of tensor-parallel traffic that hides behind the products it is of, likewise."""
OPTIMIZER_BYTES = 40
"""Read and written a parameter by Adam in mixed precision, with the norm of the gradients and setting them to zero."""
_ADAMS_MOMENTS = 8
"""Bytes of these, each of which is read and written."""
_QUANTIZED_GRADIENT = 0.5
"""Bytes that ZeRO++ sends of a gradient (Wang et al. 2023, section 3.3)."""
PCIE_BANDWIDTH = 16e9
"""Bytes a second that a fourth-generation slot reaches, one direction."""


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """Seconds of one step."""

    parts: dict[str, float]
    """What it is made of, seconds."""
    flops_per_gpu: float
    """Operations of one step, with those that are computed again, over the GPUs."""
    model_flops_per_gpu: float
    """Without those."""
    peak_flops: float
    """Of one GPU, in the precision of the layout."""
    tokens: int
    """A step."""
    best_s: float
    """With all traffic hidden that can be."""
    worst_s: float
    """With none hidden."""

    @property
    def value(self) -> float:
        """Sum of the parts."""
        return sum(self.parts.values())

    @property
    def tflops_per_gpu(self) -> float:
        """As papers report it: recomputed operations count."""
        return self.flops_per_gpu / self.value / 1e12

    @property
    def mfu(self) -> float:
        """Model FLOP/s utilisation: recomputed operations do not count (Chowdhery et al. 2022)."""
        return self.model_flops_per_gpu / self.value / self.peak_flops


def bubble_ratio(stages: int, chunks: int, micro_batches: int) -> float:
    """Return idle time over working time: (p−1)/(v·m). Of the whole it is (p−1)/(v·m+p−1)."""
    return (stages - 1) / (chunks * micro_batches)


_FILLED: dict[str, int] = {"ZB-H1": 2, "ZB-H2": 3, "ZB-V": 3}
"""How often the time for the gradients of weights fits into what would be idle (Qi et al. 2023, Table 2): of 1F1B's
(p−1)(F + B + W) are left (p−1)(F + B − W) by H1 and (p−1)(F + B − 2W) by H2."""


def _bubble_s(layout: Layout, stage: float, weights: float) -> float:
    """Return what a rank idles in a step.

    Args:
        layout: its schedule, stages and chunks.
        stage: seconds of a stage for one micro-batch, forward and backward.
        weights: those of it for the gradients of weights.
    """
    if layout.schedule in _FILLED:
        return (layout.pipeline - 1) * max(stage - _FILLED[layout.schedule] * weights, 0.0)
    return bubble_ratio(layout.pipeline, layout.virtual_stages, layout.micro_batches) * layout.micro_batches * stage


def step_time(shape: ModelShape, layout: Layout, hardware: Hardware, layer: LayerTime | None = None) -> TimeEstimate:
    """Return what one step takes.

    The slowest stage sets the pace of every micro-batch, and the pipeline fills and drains once: (p−1)/v stages.

    Args:
        shape: the model.
        layout: how it is laid out.
        hardware: what it runs on.
        layer: what `layer_time` returned for the same arguments, where it is known.
    """
    layer = layer or layer_time(shape, layout, hardware)
    p, v, m = layout.pipeline, layout.virtual_stages, layout.micro_batches
    layers = ceil(shape.layers / p)
    head_s = _head_s(shape, layout, hardware)
    last = stage_layers(shape.layers, layout)[-1]
    if last < layers:
        # Where layers do not come out even, the last stage is one of those that have one less, beside the output layer.
        head_s = max(head_s - layer.forward - layer.backward - layer.again - layer.talking, 0.0)
    computing = layers * (layer.forward + layer.backward)
    again = layers * layer.again
    hidden = TENSOR_OVERLAP if layout.tensor_overlap and layout.sequence_parallel else 0.0
    reducing = layers * layer.communication * (1 - hidden)
    sending = 2 * v * _send_s(shape, layout, hardware) if p > 1 else 0.0
    if v > 1 and layout.overlap:
        sending = max(sending - computing, (1 - CHUNK_OVERLAP) * sending)
    waiting = layers * layer.waiting
    exchanging, ring = layers * layer.experts, layers * layer.ring
    stage = computing + again + reducing + waiting + sending + exchanging + ring
    held = held_parameters(shape, layout, last, is_first=p == 1, is_last=True)
    ours = held.sharded(layout) if layout.zero_stage >= 1 else held.total
    moved = OPTIMIZER_BYTES - 2 * (_ADAMS_MOMENTS - moment_bytes(layout.optimizer, layout.weights))
    update = Kernels(hardware, layout).move(ours * moved)
    recomputes = layout.recompute == "full"
    gpus = layout.ranks
    gradients = _data_parallel_s(held, layers, layout, hardware, computing + again)
    parts = {
        "compute": m * (computing + head_s),
        "recompute": m * again,
        "host": m * waiting,
        "tensor_parallel": m * reducing,
        "context_parallel": m * ring,
        "expert_parallel": m * exchanging,
        "pipeline_transfer": m * sending,
        "pipeline_bubble": _bubble_s(layout, stage, layers * layer.weights),
        "data_parallel": gradients.usual,
        "optimizer": update + _offload_s(shape, layout, ours, held),
    }
    total = sum(parts.values())
    return TimeEstimate(
        parts,
        shape.flops(layout.global_batch, recompute=recomputes) / gpus,
        shape.flops(layout.global_batch) / gpus,
        hardware.gpu.peak_flops(layout.precision),
        layout.global_batch * shape.seq_length,
        total - gradients.usual + gradients.hidden,
        total - gradients.usual + gradients.bare,
    )


def _head_s(shape: ModelShape, layout: Layout, hardware: Hardware) -> float:
    """Output layer and loss, forward and backward, of one micro-batch; the last stage has it."""
    tokens = shape.seq_length * layout.micro_batch / layout.context
    columns = shape.vocab_size / layout.tensor
    kernel = Kernels(hardware, layout)
    product = kernel.product(tokens, shape.hidden_size, columns, of_weights=False)
    return (3 if shape.lora is None else 2) * product + 3 * kernel.move(12 * tokens * columns)


def _send_s(shape: ModelShape, layout: Layout, hardware: Hardware) -> float:
    """Activations of one micro-batch to the next stage; tensor-parallel ranks send a share each and gather it there."""
    size = shape.seq_length * layout.micro_batch / layout.context * shape.hidden_size * layout.bytes_per_parameter
    reached = hardware.efficiency
    if layout.ranks > hardware.linked:
        link = Interconnect(hardware.inter.bandwidth * reached.inter_node, hardware.inter.latency_s)
    else:
        link = Interconnect(hardware.intra.bandwidth * reached.intra_node, hardware.intra.latency_s)
    sent = link.latency_s + size / layout.tensor / link.bandwidth
    if layout.sequence_parallel:
        return sent
    return sent + all_gather_s(size, layout.tensor, group_link(hardware, layout.tensor, 1))


@dataclass(frozen=True, slots=True)
class _Exposed:
    """Seconds of a step in which a rank waits for the others' gradients and parameters."""

    hidden: float
    """With all hidden behind computing that can be."""
    usual: float
    bare: float
    """With nothing hidden."""


@dataclass(frozen=True, slots=True)
class _Synced:
    """Parameters of one rank that some ranks have in common."""

    trained: float
    """That have gradients."""
    weights: float
    """Bytes of all, with those that are frozen."""
    ranks: int
    """That have them."""
    stride: int
    """Between two of those ranks."""


def _data_parallel_s(held: Held, layers: int, layout: Layout, hardware: Hardware, computing: float) -> _Exposed:
    """Gradients over the replicas, and what sharding adds; a share of what could hide behind computing does.

    Experts have replicas of their own, one reduction after the other.

    Args:
        held: parameters of the last stage, on one rank.
        layers: of a stage.
        layout: how the model is laid out.
        hardware: what it runs on.
        computing: seconds of a stage's layers for one micro-batch.
    """
    width, frozen = layout.bytes_per_parameter, held.frozen_bytes
    groups = [_Synced(held.shared, frozen or held.shared * width, layout.replicas, layout.tensor)]
    if held.experts:
        stride = layout.expert * layout.tensor_of_experts
        groups.append(_Synced(held.experts, held.experts * width, layout.expert_replicas, stride))
    if layout.zero_stage < 2:
        once = sum(_reduced_s(group, layout, hardware) for group in groups)
        if not layout.overlap:
            return _Exposed(once, once, once)
        least = max(once - computing, 0.0)
        return _Exposed(least, max(least, (1 - GRADIENT_OVERLAP) * once), once)
    sharded = [_sharded_s(group, layers, layout, hardware) for group in groups]
    total = layout.micro_batches * sum(each for each, _last in sharded)
    last = sum(last for _each, last in sharded)
    if not layout.overlap:
        return _Exposed(total + last, total + last, total + last)
    least = max(total - layout.micro_batches * computing, 0.0)
    return _Exposed(least + last, max(least, (1 - OVERLAP) * total) + last, total + last)


def _reduced_s(group: _Synced, layout: Layout, hardware: Hardware) -> float:
    """Seconds of a group's gradients up to stage 1: once a step, in or after the last micro-batch."""
    link = group_link(hardware, group.ranks, group.stride)
    gradients = group.trained * layout.bytes_per_reduced_gradient
    if layout.zero_stage == 0:
        return all_reduce_s(gradients, group.ranks, link)
    updated = group.trained * layout.bytes_per_parameter
    return all_gather_s(gradients, group.ranks, link) + all_gather_s(updated, group.ranks, link)


def _sharded_s(group: _Synced, layers: int, layout: Layout, hardware: Hardware) -> tuple[float, float]:
    """Seconds of a group's gradients and parameters for each micro-batch, and once after the last, from stage 2 on.

    Gradients are scattered after each micro-batch, layer by layer, since no rank has room for all of them; stage 3
    gathers parameters once more for the forward pass, and again for the backward pass unless they are kept, or from
    fewer ranks that have a second copy. Where a shard's ranks are not all, the shards of gradients are summed over the
    groups of them (hybrid sharding).
    """
    ranks = min(layout.shard_ranks, group.ranks)
    link = group_link(hardware, ranks, group.stride)
    gradients, weights = (
        group.trained * layout.bytes_per_reduced_gradient / layers,
        group.weights / layers,
    )
    if layout.quantized_gradients:
        gradients = group.trained * _QUANTIZED_GRADIENT / layers
    each = layers * all_gather_s(gradients, ranks, link)
    if layout.zero_stage == 3:
        each += layers * all_gather_s(weights * (0.5 if layout.quantized_weights else 1), ranks, link)
        if layout.reshard:
            near = min(layout.secondary_shard or ranks, ranks)
            each += layers * all_gather_s(weights, near, group_link(hardware, near, group.stride))
    if (others := group.ranks // ranks) > 1:
        between = group_link(hardware, others, group.stride * ranks)
        each += layers * all_reduce_s(gradients / ranks, others, between)
    updated = group.trained * layout.bytes_per_parameter / layers
    return each, layers * all_gather_s(updated, ranks, link) if layout.zero_stage == 2 else 0.0


def _offload_s(shape: ModelShape, layout: Layout, trained: float, held: Held) -> float:
    """Return seconds of what travels over PCIe and hides behind nothing.

    Once a step gradients go to the host and what it has updated comes back; each micro-batch fetches the parameters
    that are kept there for the forward and the backward pass, and sends its activations there and back.

    Args:
        shape: the model.
        layout: how it is laid out.
        trained: parameters that this rank updates.
        held: those of its stage, before they are sharded.
    """
    away, size = OFFLOADED[layout.offload], 0.0
    if "optimizer" in away:
        size += trained * (layout.bytes_per_gradient + layout.bytes_per_parameter)
    if "parameters" in away:
        weights = held.frozen_bytes or held.total * layout.bytes_per_parameter
        size += 2 * layout.micro_batches * weights / (layout.shard_ranks if layout.zero_stage >= 3 else 1)
    if layout.offload_activations:
        layers = shape.layers / layout.pipeline
        size += 2 * layout.micro_batches * layers * activation_bytes_per_layer(shape, layout)
    return size / PCIE_BANDWIDTH
