"""Memory of programs of PyTorch's own operators, where Megatron-LM has fused kernels; of autocast; of FSDP2's buffers.

Each figure is what torch's own tracker finds of a decoder (tests/unit/planning/test_cost_decoder.py).
"""

from __future__ import annotations

from dttui.planning.cost.adapters import frozen_bytes
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.shape import ModelShape

_LOSS_BYTES = 12
"""A token and word of the vocabulary, all in fp32: the logarithm of softmax, its gradient, and that of the logits."""
_FORWARD_LOSS_BYTES = 10
"""Before that: logits in half precision and in fp32, and the logarithm of softmax."""


def kept_beside(shape: ModelShape, layout: Layout) -> tuple[float, float]:
    """Return what a layer keeps beside what fused kernels in half precision do, in bytes a token, whole and split.

    A gate's activation and its product are two operators, and the second keeps what the first gives. Under autocast
    what goes from layer to layer is in fp32, and each product casts its input for itself: queries, keys, values, gates
    and what is gated are products of their own in Llama's programs; GPT's have one for the first three.
    """
    split = 0.0 if layout.fused or not shape.gated else 2 * shape.used_feed_forward_size
    whole = (10 if shape.gated else 4) * shape.hidden_size if layout.casts else 0.0
    return whole, split


def loss_bytes(shape: ModelShape, layout: Layout) -> float:
    """Return what output layer and loss hold at most: what the last norm and the output layer take in, and logits.

    Fused, the logits in fp32 alone (Korthikanti et al. 2022, section 4.3). A frozen output layer keeps no input.
    """
    tokens, h, t = layout.tokens(shape), shape.hidden_size, layout.tensor
    taken = layout.residual_bytes + (layout.bytes_per_parameter if shape.lora is None else 0)
    return tokens * (taken * h + (4 if layout.fused else _LOSS_BYTES) * shape.vocab_size) / t


def backward_bytes(shape: ModelShape, layout: Layout) -> float:
    """Return what the backward pass of one layer takes at most beside what it is about to free.

    Of a gate two gradients as wide as the feed-forward part, of another activation one; of plain attention those of
    what softmax gives and takes in, by when what the feed-forward part kept is free, and with dropout what it gave,
    too. Fused kernels write over what they read.
    """
    if layout.fused or shape.convolutions is not None:
        return 0.0
    tokens, t = layout.tokens(shape), layout.tensor
    wide = (2 if shape.gated else 1) * shape.used_feed_forward_size
    freed = 2 * shape.hidden_size + (4 if shape.gated else 2) * shape.used_feed_forward_size
    both = shape.heads * shape.seq_length * (1 if shape.dropout else 2)
    return tokens * max(wide, both - freed if shape.attention == "plain" else 0.0) / t * layout.bytes_per_parameter


def cast_bytes(shape: ModelShape, layout: Layout, loss: float, again: float, *, is_last: bool) -> float:
    """Return the casts of weights that autocast keeps from the forward to the backward pass: all of them.

    Where layers are computed again, theirs are there at the end of the forward pass alone, and then one layer's.

    Args:
        shape: the model.
        layout: how it is laid out.
        loss: bytes of the loss at its largest.
        again: bytes of a layer in its backward pass.
        is_last: whether the stage has the output layer.
    """
    if not layout.casts:
        return 0.0
    width = layout.bytes_per_parameter / layout.tensor
    output = width * shape.vocab_size * shape.hidden_size if is_last else 0.0
    layers = width * shape.layers / layout.pipeline * shape.layer_weights
    if layout.recompute != "full":
        return layers + output
    tokens = layout.tokens(shape)
    freed = (_LOSS_BYTES - _FORWARD_LOSS_BYTES) * tokens * shape.vocab_size / layout.tensor if is_last else 0.0
    moments = layers + output + loss - freed, output + loss, width * shape.layer_weights + again
    return max(moments) - max(loss, again)


def gathered_bytes(shape: ModelShape, layout: Layout, loss: float, again: float, activations: float) -> float:
    """Return what FSDP2 holds beside shards and activations at its peak, one of three (fully_shard of torch 2.13).

    Embedding and output layer are gathered by themselves, and stay from the forward to the end of the backward pass.
    While the loss is computed, with the next layer's parameters beside them; in a layer's backward pass, with two
    layers' parameters, the gradients of the layer before in fp32 as they are summed, and the output layer's; at the
    end, the gradients of both, as computed and in fp32.

    Args:
        shape: the model.
        layout: how it is laid out.
        loss: bytes of the loss at its largest, which are there in the first alone.
        again: bytes of a layer in its backward pass, which are there in the second alone.
        activations: bytes that are there in both.
    """
    width, trains = layout.bytes_per_parameter, shape.lora is None
    layer = shape.layer_parameters / layout.tensor
    shared = width * layer if trains else frozen_bytes(shape, shape.layer_parameters, layout, 1) / layout.tensor
    output = shape.vocab_size * shape.hidden_size / layout.tensor
    outer = (shape.embedding_parameters + shape.output_parameters) / layout.tensor
    gradients = 4 * layer + width * output if trains else 0.0
    moments = (
        activations + loss + width * outer + shared,
        activations + max(again, width * layer if trains else 0.0) + width * outer + 2 * shared + gradients,
        (width + 4) * outer if trains else 0.0,
    )
    return max(moments) - (activations + max(loss, again))
