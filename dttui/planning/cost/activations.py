"""What a layer keeps for its backward pass, part by part, and which of it is computed again (Korthikanti et al. 2022).

For GPT's shape 34·s·b·h beside attention's scores, 24 of it split over tensor-parallel ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from dttui.planning.cost.adapters import spared
from dttui.planning.cost.convolutions import KEPT_INPUTS, kept_bytes
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.shape import ModelShape
from dttui.planning.cost.unfused import kept_beside

_NORMS: frozenset[str] = frozenset({"layernorm", "products"})
_QUERIES: frozenset[str] = frozenset({"mla_up_proj"})
_KEYS: frozenset[str] = frozenset({"mla_up_proj", "products"})
_GATES: frozenset[str] = frozenset({"mlp", "products"})
_UP: frozenset[str] = frozenset({"mlp"})
_ACTIVATED: frozenset[str] = frozenset({"mlp", "mlp_act", "products"})
_EXPERTS: frozenset[str] = frozenset({"moe"})
_EXPERTS_ACTIVATED: frozenset[str] = frozenset({"moe", "moe_act"})
_SHARED: frozenset[str] = frozenset({"moe", "shared_experts"})


class Kept(NamedTuple):
    """Bytes of a token that one layer keeps, in half precision."""

    whole: float = 0.0
    """As wide as the model; sequence parallelism alone splits them."""
    split: float = 0.0
    """In as many parts as there are tensor-parallel ranks."""
    again: frozenset[str] | None = None
    """Where one of these is computed again, they are not kept; `None` for what always is."""


def activation_bytes_per_layer(shape: ModelShape, layout: Layout) -> float:
    """Return bytes one layer keeps for one micro-batch: all, what is not computed again, or its input alone."""
    if shape.convolutions is not None:
        return kept_bytes(shape, shape.convolutions, layout) * (KEPT_INPUTS if layout.recompute == "full" else 1)
    if layout.recompute == "full":
        shared = layout.tensor if layout.sequence_parallel else 1
        return layout.tokens(shape) * shape.hidden_size * layout.residual_bytes / shared
    again = layout.again
    kept, _freed = _kept_and_freed(shape, layout.precision == "fp8", again)
    return _bytes(kept, shape, layout) + (0.0 if "core_attn" in again else _scores_bytes(shape, layout))


def recomputed_bytes(shape: ModelShape, layout: Layout) -> float:
    """Return what one layer holds while it, or a part of it, is computed again."""
    if layout.recompute == "none":
        return 0.0
    if shape.convolutions is not None:
        return kept_bytes(shape, shape.convolutions, layout) if layout.recompute == "full" else 0.0
    again = layout.again
    kept, freed = _kept_and_freed(shape, layout.precision == "fp8", again)
    if layout.recompute == "full":
        return _bytes(kept, shape, layout) + _scores_bytes(shape, layout)
    return _on_a_rank(freed, shape, layout) + (_scores_bytes(shape, layout) if "core_attn" in again else 0.0)


def _bytes(kept: tuple[float, float], shape: ModelShape, layout: Layout) -> float:
    """Return them with what programs and adapters keep otherwise."""
    whole, split = kept
    for more_whole, more_split in (kept_beside(shape, layout), spared(shape, layout)):
        whole, split = whole + more_whole, split + more_split
    return _on_a_rank((whole, split), shape, layout)


def _on_a_rank(sums: tuple[float, float], shape: ModelShape, layout: Layout) -> float:
    """Return bytes of a micro-batch, of those of a token in half precision that are whole and split."""
    whole, split = sums
    shared = layout.tensor if layout.sequence_parallel else 1
    return layout.tokens(shape) * (whole / shared + split / layout.tensor) * layout.bytes_per_parameter / 2


@lru_cache(maxsize=64)
def _kept_and_freed(
    shape: ModelShape, is_fp8: bool, again: frozenset[str]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return bytes of a token, whole and split, that are kept, and those that are computed again."""
    sums = {False: [0.0, 0.0], True: [0.0, 0.0]}
    for part in _parts(shape, 1 if is_fp8 else 2):
        found = sums[bool(part.again and part.again & again)]
        found[0] += part.whole
        found[1] += part.split
    return (sums[False][0], sums[False][1]), (sums[True][0], sums[True][1])


def _parts(shape: ModelShape, taken: int) -> Iterator[Kept]:
    """Yield what a layer keeps besides attention's scores; `taken` are bytes of a product's input.

    Both norms' inputs; what they give, which the first products take in; the masks of two dropouts; queries, keys and
    values; attention's result; what gates and activation take in and give. A product in fp8 keeps its input in a byte,
    beside attention's result in half precision, which attention itself needs.
    """
    h, q, kv = shape.hidden_size, shape.query_size, shape.kv_size
    yield Kept(whole=4 * h)
    yield Kept(whole=2 * taken * h, again=_NORMS)
    if shape.dropout:
        yield Kept(whole=2 * h)
    yield Kept(split=2 * q + 2 * kv, again=_QUERIES)
    yield Kept(split=2 * kv, again=_KEYS)
    yield Kept(split=2 * q + (taken * q if taken == 1 else 0.0))
    if shape.latent is not None:
        ranks = (shape.latent.q_rank or 0) + shape.latent.kv_rank
        yield Kept(whole=(2 + taken) * ranks)
    yield from _of_feed_forward(shape, taken)


def _of_feed_forward(shape: ModelShape, taken: int) -> Iterator[Kept]:
    """Yield what the feed-forward part keeps; of experts also what is sent to them.

    What they give is not kept: a token's share of an expert is multiplied in before the second product.
    """
    dense, share, gates = 1 - shape.expert_share, shape.expert_share, 2 if shape.gated else 1
    if dense:
        size = dense * shape.feed_forward_size
        if shape.gated:
            yield Kept(split=2 * size, again=_GATES)
        yield Kept(split=2 * size, again=_UP)
        yield Kept(split=taken * size, again=_ACTIVATED)
    if not share:
        return
    size, passed = share * shape.width_of_expert, shape.experts_per_token
    yield Kept(whole=taken * share * passed * shape.hidden_size, again=_EXPERTS)
    yield Kept(split=2 * gates * passed * size, again=_EXPERTS)
    yield Kept(split=taken * passed * size, again=_EXPERTS_ACTIVATED)
    yield Kept(split=(2 * gates + taken) * shape.shared_experts * size, again=_SHARED)


def _scores_bytes(shape: ModelShape, layout: Layout) -> float:
    """Return what attention keeps of its scores: 5·a·s²·b with dropout, two without; flash four a head and token.

    Autocast has softmax in fp32, and casts what it gives for the product with values: 7 and 6.
    """
    pairs = shape.heads * layout.tokens(shape) / layout.tensor
    if shape.attention == "flash":
        return 4 * pairs
    each = (7 if shape.dropout else 6) if layout.casts else (5 if shape.dropout else 2)
    return each * pairs * shape.seq_length * (layout.bytes_per_parameter / 2)
