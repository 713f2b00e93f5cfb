"""Networks of convolutions, such as ResNet: operations over the reached peak, bytes over the reached bandwidth.

Each convolution is followed by a batch norm and an activation, kernels of their own as PyTorch has them, of images with
channels last. Nothing is fitted: what products and memory reach is the same as a transformer's.
"""

from __future__ import annotations

from dttui.planning.cost.kernels import COMPILED_TRAFFIC, Kernels
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.shape import ModelShape
from dttui.spec.known_models import Convolutions

FORWARD_TRAFFIC = (2, 5)
"""How often the forward pass reads or writes each number that a convolution gives: the convolution two times, once with
what it takes in; batch norm three, once for its mean; the activation two."""
BACKWARD_TRAFFIC = (4, 8)
"""Backward: gradients of what goes in and of the weights read and write two each; batch norm five, activation three."""
KEPT = 2
"""Numbers kept for the backward pass for each that a convolution gives: that, and what the activation makes of it."""
KEPT_INPUTS = 1 / 3
"""Share of these that is left where blocks are computed again from what goes into them: a block of three gives six
widths, four of them to the next."""
_FIRST_KEPT, _POOLED_FROM_BYTES = 224**2 * 3 + 56**2 * 64, 56**2 * 64 * 8
"""Numbers of the image and of what the first pooling gives, and where in each field that was from: 8 bytes each."""
PASSES_LESS = 0.4
"""What the host takes to issue a block forward, by a transformer's layer: ten operations of 25."""


def block_s(shape: ModelShape, of: Convolutions, layout: Layout, kernel: Kernels) -> tuple[float, float]:
    """Return seconds of one block for one micro-batch, forward and backward, all blocks being alike."""
    images = layout.micro_batch / shape.layers
    size, operations = images * of.values * kernel.width, 2 * images * of.operations
    eager = COMPILED_TRAFFIC if layout.compiled else 1.0
    forward, backward = (own + eager * others for own, others in (FORWARD_TRAFFIC, BACKWARD_TRAFFIC))
    return kernel.convolved(operations, forward * size), kernel.convolved(2 * operations, backward * size)


def kept_bytes(shape: ModelShape, of: Convolutions, layout: Layout) -> float:
    """Return bytes that one block keeps for its backward pass, of a micro-batch, with its share of what is first."""
    image = (KEPT * of.values + _FIRST_KEPT) * layout.bytes_per_parameter + _POOLED_FROM_BYTES
    return layout.micro_batch * image / shape.layers
