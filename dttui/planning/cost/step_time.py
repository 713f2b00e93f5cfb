"""Time of one training step: matrix products and memory traffic of a layer, collectives, pipeline, optimizer.

Kernels and messages are those of Megatron-LM (Narayanan et al. 2021, Korthikanti et al. 2022). Each kernel takes its
operations over the reached peak plus its bytes over the reached bandwidth plus its start, so that small ones are slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from dttui.planning.cost.adapters import BYTES_BY_BITS, adapted
from dttui.planning.cost.collectives import all_gather_s, all_reduce_s, group_link
from dttui.planning.cost.hardware import Hardware, Interconnect
from dttui.planning.cost.layout import OFFLOADED, Layout, stage_layers
from dttui.planning.cost.memory import Held, activation_bytes_per_layer, held_parameters
from dttui.planning.cost.optimizers import moment_bytes
from dttui.planning.cost.shape import ModelShape
from dttui.planning.cost.token_exchange import expert_exchange_s, ring_attention_s

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
BACKWARD_TRAFFIC = 1.15
"""Bytes that element-wise kernels move in the backward pass, for each of the forward pass: dropout and residual need
fewer, normalisation and GELU more."""
COMPILED_TRAFFIC = 0.5
"""What element-wise operations read and write once compiled, by eager ones: of two that follow each other the second
reads nothing."""
COMPILED_HOST = 0.4
"""What the host takes to issue a compiled pass, by an eager one: some ten kernels for 25 operations."""
EXPERT_HOST = 3.0
"""What the host takes to issue a layer with experts, by one without: router, counts, permutations. Fitted like the
shares above, of which runs with experts are missed by most: programs gained up to 40% within five months."""
EXPERT_BYTES = 24
"""Read and written for each value of a token on its way to an expert and back: permuted, weighed and added up in
half precision, forward. Fitted likewise; 8 if it were copied once on either side."""
OPTIMIZER_BYTES = 40
"""Read and written a parameter by Adam in mixed precision, with the norm of the gradients and setting them to zero."""
_ADAMS_MOMENTS = 8
"""Bytes of these, each of which is read and written."""
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


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Seconds of one layer for one micro-batch; backward is without what is computed again."""

    forward: float
    backward: float
    again: float
    communication: float
    """Of the tensor-parallel group, forward and backward and again."""
    issuing: float
    """Of the host. The GPU runs behind it, so that the longer of the two counts."""
    weights: float = 0.0
    """Of the backward pass, those for the gradients of weights, which other stages do not wait for."""
    experts: float = 0.0
    """Of tokens on their way to experts and back, forward and backward and again."""
    ring: float = 0.0
    """Of keys and values on their way around a shared sequence, forward and backward, beyond what attention covers."""

    @property
    def talking(self) -> float:
        """Seconds of all that is sent."""
        return self.communication + self.experts + self.ring

    @property
    def waiting(self) -> float:
        """Seconds that the GPU waits for the host."""
        return max(self.issuing - self.forward - self.backward - self.again - self.talking, 0.0)


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


def layer_time(shape: ModelShape, layout: Layout, hardware: Hardware) -> LayerTime:
    """Return what one layer takes; depends on neither replicas nor stages, but on all else."""
    h, s, t, b = shape.hidden_size, shape.seq_length, layout.tensor, layout.micro_batch
    width = layout.bytes_per_parameter / 2
    kernel = _Kernels(hardware, layout)
    tokens = s * b // layout.context
    mixed = shape.query_size + 2 * shape.kv_size
    products = kernel.product(tokens, h, mixed / t) + kernel.product(tokens, shape.query_size / t, h)
    if shape.latent is not None:
        # Compression and expansion are products of their own: as many operations as they have weights.
        products *= shape.attention_weights / (h * (2 * shape.query_size + 2 * shape.kv_size))
    feed_forward, activated = _feed_forward(shape, layout, tokens, kernel)
    products += feed_forward
    whole = t if layout.sequence_parallel else 1
    passes_each = COMPILED_TRAFFIC if layout.compiled else 1.0
    norms = kernel.move(passes_each * (22 if shape.dropout else 20) * tokens * h / whole * width)
    elementwise = norms + kernel.move(passes_each * (4 * mixed + activated) * tokens / t * width)
    attention, attention_back = _attention_s(shape, layout, kernel)
    forward = products + attention + elementwise
    adapters, dequantised = _adapters_s(shape, tokens, t, kernel)
    forward += adapters + dequantised
    weighed = products if shape.lora is None else 0.0
    backward = products + weighed + 2 * adapters + dequantised + attention_back + BACKWARD_TRAFFIC * elementwise
    reduced = 2 * all_reduce_s(2 * tokens * h * width, t, group_link(hardware, t, 1))
    again = {"none": 0.0, "selective": attention, "full": forward}[layout.recompute]
    rounds = 3 if layout.recompute == "full" else 2
    passes = {"none": 3.0, "selective": 3.2, "full": 4.0}[layout.recompute]  # Attention is 5 of the 25 operations.
    ring, ring_back = ring_attention_s(shape, layout, hardware)
    late = max(ring - attention, 0.0) * (rounds - 1) + max(ring_back - attention_back, 0.0)
    exchanged = expert_exchange_s(shape, layout, hardware) * rounds / 2
    issuing = passes * hardware.efficiency.host_pass_s * (COMPILED_HOST if layout.compiled else 1.0)
    issuing *= 1 + (EXPERT_HOST - 1) * shape.expert_share
    return LayerTime(forward, backward, again, rounds * reduced, issuing, products, exchanged, late)


def _feed_forward(shape: ModelShape, layout: Layout, tokens: int, kernel: _Kernels) -> tuple[float, float]:
    """Return seconds of the feed-forward part's products, and bytes a token that its activation moves.

    Experts are products of as many rows as are sent to each, those of one rank in one kernel, with the router's before
    them; all are sent as many. Layers of both kinds are averaged.
    """
    h, rows, t = shape.hidden_size, 3 if shape.gated else 2, layout.tensor

    def part(size: float, rows_each: float, count: float = 1) -> float:
        up = kernel.product(rows_each, h, (rows - 1) * size, count)
        return up + kernel.product(rows_each, size, h, count)

    dense = part(shape.feed_forward_size / t, tokens), 2.0 * rows * shape.feed_forward_size
    if shape.experts is None:
        return dense
    size, split = shape.width_of_expert, layout.tensor_of_experts
    sent = tokens * shape.experts_per_token * layout.expert * split / t
    routed = kernel.product(tokens, h, shape.experts, of_weights=False) + part(
        size / split, sent / shape.experts, shape.experts / layout.expert
    )
    if shape.shared_experts:
        routed += part(shape.shared_experts * size / t, tokens)
    passed = shape.experts_per_token + shape.shared_experts
    moved = 2.0 * rows * passed * size + EXPERT_BYTES * h * shape.experts_per_token
    share = shape.expert_share
    return (1 - share) * dense[0] + share * routed, (1 - share) * dense[1] + share * moved


def _adapters_s(shape: ModelShape, tokens: int, t: int, kernel: _Kernels) -> tuple[float, float]:
    """Return seconds of a layer's adapters, forward, and of making its weights anew from fewer bits, each pass.

    An adapter is two products, whose result is scaled and added; a token's share of experts is averaged over them.
    """
    if shape.lora is None:
        return 0.0, 0.0
    rank, adapters = shape.lora.rank, 0.0
    for rows, columns, _count, used in adapted(shape):
        both = kernel.product(tokens, rows / t, rank) + kernel.product(tokens, rank, columns / t)
        adapters += used * (both + kernel.move(5 * tokens * columns / t * kernel.width))
    if shape.lora.bits is None:
        return adapters, 0.0
    weights = shape.layer_weights / t
    return adapters, kernel.move(weights * (BYTES_BY_BITS[shape.lora.bits] + kernel.width))


def _attention_s(shape: ModelShape, layout: Layout, kernel: _Kernels) -> tuple[float, float]:
    """Return seconds of attention between its products, forward and backward.

    Flash attention computes its scores anew in the backward pass: five products for the two of the forward pass, and
    reads and writes no more than what it is given and gives (Dao et al. 2022).
    """
    s, groups = shape.seq_length, layout.micro_batch * shape.heads / (layout.tensor * layout.context)
    head = shape.query_size / shape.heads
    if shape.attention == "flash":
        operations = 4 * groups * s * s * head * shape.attended
        tokens = s * layout.micro_batch / (layout.tensor * layout.context) * layout.bytes_per_parameter
        size = tokens * (2 * shape.query_size + 2 * shape.kv_size)
        return kernel.fused(operations, size), kernel.fused(2.5 * operations, 2 * size)
    scores = kernel.product(s, head, s, groups, of_weights=False)
    scores += kernel.product(s, s, head, groups, of_weights=False)
    softmax = kernel.move(9 * groups * s * s * layout.bytes_per_parameter / 2)
    return scores + softmax, 2 * scores + BACKWARD_TRAFFIC * softmax


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
    update = _Kernels(hardware, layout).move(ours * moved)
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


class _Kernels:
    """Seconds of kernels on one GPU."""

    def __init__(self, hardware: Hardware, layout: Layout) -> None:
        reached, gpu = hardware.efficiency, hardware.gpu
        is_fp8 = layout.precision == "fp8" and gpu.fp8 is not None
        half = "bf16" if layout.precision == "fp8" else layout.precision
        peak = gpu.peak_flops(half)
        self._wide_flops = peak * reached.matmul
        self._flops = gpu.peak_flops("fp8") * reached.fp8_matmul if is_fp8 else self._wide_flops
        self._fused_flops = peak * ((layout.tuned_attention and reached.tuned_flash) or reached.flash)
        self._bandwidth = hardware.gpu.memory_bandwidth * 1e9 * reached.memory
        self._start_s = reached.kernel_s
        self.width = layout.bytes_per_parameter

    def product(
        self, rows: float, inner: float, columns: float, count: float = 1.0, *, of_weights: bool = True
    ) -> float:
        """A matrix product, `count` times in one kernel; fp8 is for those with the weights of layers alone."""
        operations = 2 * rows * inner * columns * count
        size = self.width * (rows * inner + inner * columns + rows * columns) * count
        return operations / (self._flops if of_weights else self._wide_flops) + size / self._bandwidth + self._start_s

    def fused(self, operations: float, size: float) -> float:
        """Flash attention."""
        return operations / self._fused_flops + size / self._bandwidth + self._start_s

    def move(self, size: float) -> float:
        """A kernel that reads and writes so many bytes."""
        return size / self._bandwidth + self._start_s


def _head_s(shape: ModelShape, layout: Layout, hardware: Hardware) -> float:
    """Output layer and loss, forward and backward, of one micro-batch; the last stage has it."""
    tokens = shape.seq_length * layout.micro_batch / layout.context
    columns = shape.vocab_size / layout.tensor
    kernel = _Kernels(hardware, layout)
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
    gathers parameters once more for the forward pass, and again for the backward pass unless they are kept. Where a
    shard's ranks are not all, the shards of gradients are summed over the groups of them (hybrid sharding).
    """
    ranks = min(layout.shard_ranks, group.ranks)
    link = group_link(hardware, ranks, group.stride)
    gradients, weights = (
        group.trained * layout.bytes_per_reduced_gradient / layers,
        group.weights / layers,
    )
    each = layers * all_gather_s(gradients, ranks, link)
    gathering = layers * all_gather_s(weights, ranks, link)
    if (others := group.ranks // ranks) > 1:
        between = group_link(hardware, others, group.stride * ranks)
        each += layers * all_reduce_s(gradients / ranks, others, between)
    if layout.zero_stage == 3:
        each += gathering * (2 if layout.reshard else 1)
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
