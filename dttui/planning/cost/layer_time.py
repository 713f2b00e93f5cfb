"""Time of one layer for one micro-batch: products, attention, what is moved between them, and what is sent.

Kernels and messages are those of Megatron-LM (Narayanan et al. 2021, Korthikanti et al. 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dttui.planning.cost.adapters import BYTES_BY_BITS, adapted
from dttui.planning.cost.collectives import all_reduce_s, group_link
from dttui.planning.cost.convolutions import PASSES_LESS, block_s
from dttui.planning.cost.hardware import Hardware
from dttui.planning.cost.kernels import COMPILED_TRAFFIC, Kernels
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.shape import ModelShape
from dttui.planning.cost.token_exchange import expert_exchange_s, ring_attention_s
from dttui.spec.known_models import Convolutions

BACKWARD_TRAFFIC = 1.15
"""Bytes that element-wise kernels move in the backward pass, for each of the forward pass: dropout and residual need
fewer, normalisation and GELU more."""
COMPILED_HOST = 0.4
"""What the host takes to issue a compiled pass, by an eager one: some ten kernels for 25 operations."""
EXPERT_HOST = 3.5
"""What the host takes to issue a layer with experts, by one without: router, counts, permutations. Fitted to
bench/measured_runs/fit.yaml by least mean absolute error. Runs with experts are missed by most of all: programs gained
up to 40% within five months."""
EXPERT_BYTES = 32
"""Read and written for each value of a token on its way to an expert and back: permuted, weighed and added up in
half precision, forward. Fitted likewise; 8 if it were copied once on either side."""
_NORMS_SHARE = 0.4
"""Of what is moved between products as wide as the model, what both norms read and write."""


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


def layer_time(shape: ModelShape, layout: Layout, hardware: Hardware) -> LayerTime:
    """Return what one layer takes; depends on neither replicas nor stages, but on all else."""
    if shape.convolutions is not None:
        return _block_time(shape, shape.convolutions, layout, hardware)
    h, s, t, b = shape.hidden_size, shape.seq_length, layout.tensor, layout.micro_batch
    width = layout.bytes_per_parameter / 2
    kernel = Kernels(hardware, layout)
    tokens = s * b // layout.context
    mixed = shape.query_size + 2 * shape.kv_size
    products = kernel.product(tokens, h, mixed / t) + kernel.product(tokens, shape.query_size / t, h)
    if shape.latent is not None:
        # Compression and expansion are products of their own: as many operations as they have weights.
        products *= shape.attention_weights / (h * (2 * shape.query_size + 2 * shape.kv_size))
    of_attention = products
    dense, experts, shared = _feed_forward(shape, layout, tokens, kernel)
    products += dense.products + experts.products + shared.products
    activated = dense.moved + experts.moved + shared.moved
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
    again = forward if layout.recompute == "full" else 0.0
    if layout.recompute == "selective":
        activating = passes_each * tokens / t * width
        seconds = {
            "core_attn": attention,
            "layernorm": norms * _NORMS_SHARE,
            "mla_up_proj": of_attention * _expanding(shape),
            "mlp": dense.products + kernel.move(activating * dense.moved),
            "mlp_act": kernel.move(activating * dense.moved),
            "moe": experts.products + shared.products + kernel.move(activating * (experts.moved + shared.moved)),
            "moe_act": kernel.move(activating * experts.activated),
            "shared_experts": shared.products + kernel.move(activating * shared.moved),
            "products": products * _every_second(shape) + elementwise,
        }
        again = sum(seconds.get(module, 0.0) for module in layout.again)
    rounds = 3 if layout.recompute == "full" else 2
    passes = {"none": 3.0, "selective": 3.2, "full": 4.0}[layout.recompute]  # Attention is 5 of the 25 operations.
    ring, ring_back = ring_attention_s(shape, layout, hardware)
    late = max(ring - attention, 0.0) * (rounds - 1) + max(ring_back - attention_back, 0.0)
    exchanged = expert_exchange_s(shape, layout, hardware) * (3 if "moe" in layout.again else rounds) / 2
    issuing = passes * hardware.efficiency.host_pass_s * (COMPILED_HOST if layout.compiled else 1.0)
    issuing *= 1 + (EXPERT_HOST - 1) * shape.expert_share
    return LayerTime(forward, backward, again, rounds * reduced, issuing, products, exchanged, late)


def _block_time(shape: ModelShape, of: Convolutions, layout: Layout, hardware: Hardware) -> LayerTime:
    forward, backward = block_s(shape, of, layout, Kernels(hardware, layout))
    again = forward if layout.recompute == "full" else 0.0
    passes = PASSES_LESS * (4 if again else 3) * (COMPILED_HOST if layout.compiled else 1.0)
    return LayerTime(forward, backward, again, 0.0, passes * hardware.efficiency.host_pass_s)


class _FeedForward(NamedTuple):
    """One kind of a layer's feed-forward parts, as a share of all layers has it."""

    products: float = 0.0
    """Seconds of its products."""
    moved: float = 0.0
    """Bytes a token that are read and written beside them."""
    activated: float = 0.0
    """Those of them that the activation reads and writes."""


def _feed_forward(
    shape: ModelShape, layout: Layout, tokens: int, kernel: Kernels
) -> tuple[_FeedForward, _FeedForward, _FeedForward]:
    """Return what the feed-forward part for all takes, experts, and those of them that all tokens go through.

    Experts are products of as many rows as are sent to each, those of one rank in one kernel, with the router's before
    them; all are sent as many.
    """
    h, rows, t = shape.hidden_size, 3 if shape.gated else 2, layout.tensor

    def part(size: float, rows_each: float, count: float = 1) -> float:
        up = kernel.product(rows_each, h, (rows - 1) * size, count)
        return up + kernel.product(rows_each, size, h, count)

    share = shape.expert_share
    moved = 2.0 * rows * (1 - share) * shape.feed_forward_size
    dense = _FeedForward((1 - share) * part(shape.feed_forward_size / t, tokens) if share < 1 else 0.0, moved, moved)
    if shape.experts is None:
        return dense, _FeedForward(), _FeedForward()
    size, split = shape.width_of_expert, layout.tensor_of_experts
    sent = tokens * shape.experts_per_token * layout.expert * split / t
    routed = kernel.product(tokens, h, shape.experts, of_weights=False) + part(
        size / split, sent / shape.experts, shape.experts / layout.expert
    )
    moved = share * 2.0 * rows * shape.experts_per_token * size
    permuted = share * EXPERT_BYTES * h * shape.experts_per_token
    experts = _FeedForward(share * routed, moved + permuted, moved)
    if not shape.shared_experts:
        return dense, experts, _FeedForward()
    moved = share * 2.0 * rows * shape.shared_experts * size
    return dense, experts, _FeedForward(share * part(shape.shared_experts * size / t, tokens), moved, moved)


def _expanding(shape: ModelShape) -> float:
    """Return the share of attention's products that makes queries, keys and values of what was compressed."""
    latent = shape.latent
    if latent is None:
        return 0.0
    queries = (latent.q_rank or 0) * (latent.head_size + latent.rope_size)
    return shape.heads * (queries + latent.kv_rank * (latent.head_size + latent.value_size)) / shape.attention_weights


def _every_second(shape: ModelShape) -> float:
    """Return the share of a layer's products that is computed again where the result of every second one is kept.

    Of Llama's seven: those of keys, of attention's result and of what a gate multiplies.
    """
    h = shape.hidden_size
    feed_forward = h * shape.used_feed_forward_size if shape.gated else 0.0
    return (h * shape.kv_size + h * shape.query_size + feed_forward) / shape.used_layer_weights


def _adapters_s(shape: ModelShape, tokens: int, t: int, kernel: Kernels) -> tuple[float, float]:
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


def _attention_s(shape: ModelShape, layout: Layout, kernel: Kernels) -> tuple[float, float]:
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
