"""What helps where no layout trains all of a model on some GPUs: adapters, the host's memory, more GPUs.

What it says of adapters is a rough bound from above, not an estimate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dttui.i18n import _
from dttui.planning.cost.estimate import GB
from dttui.planning.cost.hardware import Hardware
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.layout_search import Wish, layouts
from dttui.planning.cost.memory import (
    CONTEXT_BYTES,
    FRAGMENTATION,
    GATHERED_LAYERS,
    LOSS_COPIES,
    memory_per_gpu,
)
from dttui.planning.cost.shape import ModelShape

RANK = 16
"""Of adapters, on every product of a layer."""
ADAPTER_BYTES = 16
"""A parameter of an adapter: itself and its gradient in half precision, Adam's states and a master copy in fp32."""
WEIGHT_BYTES = {"LoRA": 2.0, "QLoRA": 0.5 + 0.5 / 8}
"""A frozen parameter: in half precision, or in 4 bits with a constant in fp32 for each block of 64 (Dettmers et al.
2023, without double quantization)."""
LEAST_SEQUENCE = 512
MOST_TIMES = 128
"""As many GPUs as there are up to which it is looked for how many would do."""


@dataclass(frozen=True, slots=True)
class AdapterBound:
    """What a GPU needs at most, where adapters alone are trained; bytes."""

    kind: str
    """`LoRA` or `QLoRA`."""
    seq_length: int
    """Tokens a sequence."""
    weights: float
    """Frozen ones, a GPU's share."""
    adapters: float
    """With gradients and optimizer states, a GPU's share."""
    activations: float
    """One sequence's, all recomputed, with the loss."""
    gathered: float
    """Layers that are whole for a while."""

    @property
    def total(self) -> float:
        """With a fragmented allocator and the largest usual context."""
        parts = self.weights + self.adapters + self.activations + self.gathered
        return parts * (1 + FRAGMENTATION) + CONTEXT_BYTES[1]


def adapter_bound(shape: ModelShape, gpus: int, kind: str) -> AdapterBound:
    """Return what a GPU needs at most for adapters on a frozen model that is sharded over all GPUs.

    Embeddings and the output layer stay in half precision; a sequence at a time, all activations computed again.

    Args:
        shape: the model, with its tokens a sequence.
        gpus: how many share it.
        kind: `LoRA` or `QLoRA`.
    """
    h, rows = shape.hidden_size, 3 if shape.gated else 2
    layer = 2 * (h + shape.query_size) + 2 * (h + shape.kv_size) + rows * (h + shape.feed_forward_size)
    frozen = shape.layer_parameters * shape.layers
    sharded = memory_per_gpu(shape, Layout(data=gpus, global_batch=gpus, zero_stage=3, recompute="full"))
    kept = sum(sharded.parts[name] for name in ("activations", "embedding", "recomputation"))
    whole = max(shape.layer_parameters, shape.embedding_parameters) * 2
    return AdapterBound(
        kind,
        shape.seq_length,
        (frozen * WEIGHT_BYTES[kind] + (shape.parameters - frozen) * 2) / gpus,
        RANK * layer * shape.layers * ADAPTER_BYTES / gpus,
        kept + sharded.parts["logits"] * (1 + LOSS_COPIES),
        GATHERED_LAYERS * whole,
    )


def fitting_adapters(shape: ModelShape, hardware: Hardware) -> AdapterBound | None:
    """Return adapters that fit, those with whole weights and long sequences first; `None` where none do."""
    tokens = shape.seq_length
    while tokens >= min(LEAST_SEQUENCE, shape.seq_length):
        for kind in WEIGHT_BYTES:
            bound = adapter_bound(replace(shape, seq_length=tokens), hardware.gpus, kind)
            if bound.total <= hardware.gpu.memory_bytes:
                return bound
        tokens //= 2
    return None


def ways_out(shape: ModelShape, hardware: Hardware, wish: Wish) -> Iterator[str]:
    """Yield what helps, a sentence each: adapters that fit, the host's memory, how many GPUs would do.

    Args:
        shape: the model.
        hardware: what does not hold it.
        wish: what was asked for.
    """
    if (bound := fitting_adapters(shape, hardware)) is not None:
        yield _adapters_text(bound)
    room, gpus = hardware.gpu.memory_bytes, hardware.gpus
    offloaded = Layout(data=gpus, global_batch=gpus, zero_stage=3, recompute="full", offload="all")
    memory = memory_per_gpu(shape, offloaded)
    if memory.high <= room:
        text = _("ZeRO 3 with optimizer and parameters in host memory fits: {high} GB a GPU, {host} GB in its host.")
        yield text.format(high=f"{memory.high / GB:.0f}", host=f"{memory.host_bytes / GB:.0f}")
    times = 2
    while times <= MOST_TIMES:
        more = replace(hardware, gpus=gpus * times)
        wanted = replace(wish, data=None)
        if any(memory_per_gpu(shape, item).high <= room for item in layouts(shape, more, more.gpus, wanted)):
            text = _("To train all of it, {gpus} such GPUs would do.")
            yield text.format(gpus=f"{more.gpus:,}")
            return
        times *= 2


def _adapters_text(bound: AdapterBound) -> str:
    bits = _("4-bit weights") if bound.kind == "QLoRA" else _("half-precision weights")
    text = _(
        "{kind} fits, by a rough bound of {total} GB a GPU with {tokens} tokens a sequence: {bits} {weights} GB "
        "(sharded over all GPUs), adapters of rank {rank} {adapters}, activations and loss {activations}, gathered "
        "layers {gathered}, the rest context and fragmentation."
    )
    return text.format(
        kind=bound.kind,
        total=f"{bound.total / GB:.0f}",
        tokens=f"{bound.seq_length:,}",
        bits=bits,
        weights=f"{bound.weights / GB:.1f}",
        rank=RANK,
        adapters=f"{bound.adapters / GB:.1f}",
        activations=f"{bound.activations / GB:.1f}",
        gathered=f"{bound.gathered / GB:.1f}",
    )
