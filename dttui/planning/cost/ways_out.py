"""What helps where no layout trains all of a model on some GPUs: adapters, the host's memory, more GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dttui.i18n import _, joined
from dttui.planning.cost.estimate import GB, LEAST_SPARE, part_names
from dttui.planning.cost.hardware import Hardware
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.layout_search import Trained, Wish, layouts
from dttui.planning.cost.memory import MemoryEstimate, memory_per_gpu
from dttui.planning.cost.shape import ModelShape
from dttui.spec.lora import Lora
from dttui.spec.yaml_writer import flow

RANK = 16
"""Of adapters, on every product of a layer."""
LEAST_SEQUENCE = 512
MOST_TIMES = 128
"""As many GPUs as there are up to which it is looked for how many would do."""


@dataclass(frozen=True, slots=True)
class Adapters:
    """Adapters that can be trained where all of a model cannot, sharded over all GPUs and with all recomputed."""

    lora: Lora
    seq_length: int
    """Tokens a sequence."""
    memory: MemoryEstimate

    def is_tight(self, room: float) -> bool:
        """Whether less than `LEAST_SPARE` of so many bytes is spare."""
        return self.memory.high > (1 - LEAST_SPARE) * room


def fitting_adapters(shape: ModelShape, layout: Layout, room: float) -> Adapters | None:
    """Return adapters that fit, those with whole weights and long sequences first; `None` where none do.

    Of a model that has adapters by its job only the weights' bits are changed.

    Args:
        shape: the model.
        layout: in which they are trained.
        room: bytes of a GPU's memory.
    """
    choices = [Lora(rank=RANK), Lora(rank=RANK, bits=4)]
    if shape.lora is not None:
        choices = [shape.lora.model_copy(update={"bits": 4})]
    tokens = shape.seq_length
    while tokens >= min(LEAST_SEQUENCE, shape.seq_length):
        for lora in choices:
            memory = memory_per_gpu(replace(shape, seq_length=tokens, lora=lora), layout)
            if memory.high <= room:
                return Adapters(lora, tokens, memory)
        tokens //= 2
    return None


def ways_out(shape: ModelShape, hardware: Hardware, wish: Wish, trained: Trained) -> Iterator[str]:
    """Yield what helps, a sentence each: adapters that fit, the host's memory, how many GPUs would do.

    Args:
        shape: the model.
        hardware: what does not hold it.
        wish: what was asked for.
        trained: how a layout is trained in.
    """
    room, gpus = hardware.gpu.memory_bytes, hardware.gpus
    model, sharded = trained(Layout(data=gpus, global_batch=gpus, zero_stage=3, recompute="full"))
    if shape.convolutions is None and (found := fitting_adapters(model, sharded, room)) is not None:
        yield _adapters_text(found, room)
    memory = memory_per_gpu(model, replace(sharded, offload="all"))
    if memory.high <= room:
        text = _("ZeRO 3 with optimizer and parameters in host memory fits: {high} GB a GPU, {host} GB in its host.")
        yield text.format(high=f"{memory.high / GB:.0f}", host=f"{memory.host_bytes / GB:.0f}")
    times = 2
    while times <= MOST_TIMES:
        more = replace(hardware, gpus=gpus * times)
        wanted = replace(wish, data=None)
        if any(memory_per_gpu(*trained(item)).high <= room for item in layouts(shape, more, more.gpus, wanted)):
            text = _("To train all of it, {gpus} such GPUs would do.")
            yield text.format(gpus=f"{more.gpus:,}")
            return
        times *= 2


def _adapters_text(found: Adapters, room: float) -> str:
    text = _(
        "{kind} fits (model.lora: {lora}): up to {high} GB a GPU with {tokens} tokens a sequence, the largest "
        "parts {parts}; by ZeRO 3 over all GPUs, with all activations computed again."
    )
    if found.is_tight(room):
        text = _(
            "{kind} fits, barely (model.lora: {lora}): up to {high} GB a GPU with {tokens} tokens a sequence, the "
            "largest parts {parts}; by ZeRO 3 over all GPUs, with all activations computed again."
        )
    names, sizes = part_names(), found.memory.parts
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:3]
    return text.format(
        kind="LoRA" if found.lora.bits is None else "QLoRA",
        lora=flow(found.lora.model_dump(mode="json", exclude_defaults=True)),
        high=f"{found.memory.high / GB:.1f}",
        tokens=f"{found.seq_length:,}",
        parts=joined(", ", [f"{names[name]} {sizes[name] / GB:.1f}" for name in largest]),
    )
