"""What would do instead of a number of a layout that does not fit the model or the GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dttui.i18n import _
from dttui.planning.cost.hardware import Hardware
from dttui.planning.cost.layout import Fault, Layout, faults
from dttui.planning.cost.shape import ModelShape

SHOWN = 6
"""Numbers that are told, those nearest to what was asked for."""
_SPLITS = ("tensor", "pipeline", "context")


def fitting_text(fault: Fault, shape: ModelShape, layout: Layout, hardware: Hardware) -> str:
    """Return the numbers that would do in place of the one that does not, in words; empty where none is found.

    Args:
        fault: what does not fit.
        shape: the model.
        layout: what was asked for.
        hardware: for how many GPUs.
    """
    words = {
        "data": _("data"),
        "tensor": _("tensor"),
        "pipeline": _("pipeline"),
        "context": _("context"),
        "expert": _("expert"),
        "global_batch": _("global batch"),
    }
    name = fault.field
    if name == "data" and hardware.gpus % (layout.tensor * layout.pipeline * layout.context):
        name = max(_SPLITS, key=lambda split: int(getattr(layout, split)))  # Of these the largest is to blame.
    if name not in words:
        return ""
    asked = getattr(layout, name)
    found = sorted(_fitting(name, shape, layout, hardware), key=lambda number: abs(number - asked))[:SHOWN]
    if not found:
        return ""
    text = _("What fits here is {name} {numbers}.")
    return text.format(name=words[name], numbers=", ".join(f"{number:,}" for number in sorted(found)))


def _fitting(name: str, shape: ModelShape, layout: Layout, hardware: Hardware) -> Iterator[int]:
    """Yield the numbers of a field with which nothing is wrong with it, all else as it is but for the replicas."""
    split = layout.tensor * layout.pipeline * layout.context
    if name == "data":
        yield hardware.gpus // split
    elif name == "global_batch":
        unit = layout.data * layout.micro_batch * (layout.pipeline if layout.virtual_stages > 1 else 1)
        below = layout.global_batch // unit * unit
        yield from (size for size in (below, below + unit) if size)
    elif name == "expert":
        for ranks in range(1, (shape.experts or 0) + 1):
            if not _wrong(name, shape, replace(layout, expert=ranks), hardware):
                yield ranks
    elif name in _SPLITS:
        rest = split // getattr(layout, name)
        for degree in range(1, hardware.gpus // rest + 1):
            data, over = divmod(hardware.gpus, rest * degree)
            other = replace(layout, **{name: degree, "data": data})
            if not over and not _wrong(name, shape, other, hardware):
                yield degree


def _wrong(name: str, shape: ModelShape, layout: Layout, hardware: Hardware) -> bool:
    found = faults(layout, shape, hardware.gpus, hardware.gpus_per_node)
    return any(fault.field in (name, "layers") for fault in found)
