"""LoRA and QLoRA: adapters beside frozen weights, how many parameters they have, and what they spare (Hu et al. 2021).

An adapter of rank r beside a product of `rows` by `columns` is two products, rows × r and r × columns, and has
r·(rows + columns) parameters. A frozen weight has no gradient, so that neither the product for that is computed nor its
input kept; the gradient of its input is computed all the same, to reach the adapters before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from dttui.planning.cost.layout import Layout
from dttui.planning.cost.shape import ModelShape

BYTES_BY_BITS = {4: 0.5 + 0.127 / 8, 8: 1.0}
"""Of a frozen weight. NF4 has a scale a block of 64, itself in 8 bits with one in fp32 a block of 256: 0.127 bits
(Dettmers et al. 2023, section 3). LLM.int8() has a scale a row, which comes to nothing (Dettmers et al. 2022)."""


def adapted(shape: ModelShape) -> Iterator[tuple[float, float, float, float]]:
    """Yield rows and columns of each product of a layer that has an adapter, how many there are, how many a token uses.

    Of experts each has its own; layers with experts and without are averaged.
    """
    if shape.lora is None:
        return
    h, q, kv = float(shape.hidden_size), shape.query_size, shape.kv_size
    of_attention = {"q_proj": (h, q), "k_proj": (h, kv), "v_proj": (h, kv), "o_proj": (q, h)}
    names = shape.lora.names
    yield from ((*size, 1.0, 1.0) for name, size in of_attention.items() if name in names)
    for name in ("gate_proj", "up_proj", "down_proj"):
        if name not in names or (name == "gate_proj" and not shape.gated):
            continue
        if shape.experts is None or shape.dense_layers:
            dense = 1 - shape.expert_share
            yield (*_ends(name, h, shape.feed_forward_size), dense, dense)
        if shape.experts is not None:
            there, used = (
                (count + shape.shared_experts) * shape.expert_share
                for count in (shape.experts, shape.experts_per_token)
            )
            yield (*_ends(name, h, shape.width_of_expert), there, used)


def _ends(name: str, hidden: float, width: float) -> tuple[float, float]:
    return (width, hidden) if name == "down_proj" else (hidden, width)


def adapter_parameters(shape: ModelShape) -> float:
    """Return the parameters of one layer's adapters."""
    rank = shape.lora.rank if shape.lora is not None else 0
    return sum(rank * (rows + columns) * count for rows, columns, count, _used in adapted(shape))


def trained_parameters(shape: ModelShape) -> float:
    """Return the parameters that have a gradient."""
    return shape.parameters if shape.lora is None else shape.layers * adapter_parameters(shape)


def frozen_bytes(shape: ModelShape, parameters: float, layout: Layout, layers: float) -> float:
    """Return the bytes of frozen parameters, those of so many layers among them: products alone are quantised."""
    bits = shape.lora.bits if shape.lora is not None else None
    if bits is None:
        return parameters * layout.bytes_per_kept_parameter
    products = min(layers * shape.layer_weights, parameters)
    return products * BYTES_BY_BITS[bits] + (parameters - products) * layout.bytes_per_parameter


def widest_product(shape: ModelShape) -> float:
    """Return the weights of a layer's largest product: what is dequantised at a time."""
    feed_forward = shape.feed_forward_size if shape.experts is None else shape.width_of_expert
    return shape.hidden_size * max(feed_forward, shape.query_size)


def spared(shape: ModelShape, layout: Layout) -> tuple[float, float]:
    """Return what a layer keeps otherwise than where all is trained, in bytes a token: of the hidden size, and split.

    The input of a product is kept where it has an adapter alone; norms, attention and gates keep theirs all the same.
    With autocast each product that keeps its input has a cast of its own. An adapter keeps its r numbers between.
    """
    if shape.lora is None:
        return 0.0, 0.0
    names, h = shape.lora.names, shape.hidden_size
    whole = 0.0
    for group in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj") if shape.gated else ("up_proj",)):
        each = len(group) if layout.casts and shape.gated else 1
        whole += 2 * h * (min(len(names & set(group)), each) - each)
    split = 0.0
    if "down_proj" not in names:
        split -= 2 * shape.used_feed_forward_size
    split += 2 * shape.lora.rank * sum(used for _rows, _columns, _count, used in adapted(shape))
    return whole, split
