"""What would shrink the largest parts of an estimate: each single change of the layout that can be, estimated anew.

Nothing here is for the figures on the way to an estimate: it is asked for where an estimate is shown in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from dttui.i18n import _
from dttui.planning.cost.estimate import GB
from dttui.planning.cost.hardware import Hardware
from dttui.planning.cost.layout import Layout, Recompute, faults
from dttui.planning.cost.memory import MemoryEstimate, memory_on
from dttui.planning.cost.recommend import frameworks_of, usually_trained
from dttui.planning.cost.shape import ModelShape
from dttui.planning.cost.step_time import TimeEstimate, step_time
from dttui.spec.entry_points import COMMAND

LARGEST = 3
"""Parts of memory, and of time, for which changes are looked for."""
FOR_EACH = 2
"""Changes told of a part."""
LEAST_GAIN = 0.02
"""Share of the whole below which a change is not worth telling."""


class LayoutChange(BaseModel):
    """One change of a layout that shrinks a part of memory or of a step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    of: Literal["memory", "time"]
    """What the part is of."""
    part: str
    """As the estimate's parts are called."""
    changes: dict[str, int | str | bool]
    """Fields of the layout with their new values, `{"recompute": "full"}`; the global batch stays."""
    memory_per_gpu_gb: float
    """Upper end with it, GB (10⁹ bytes)."""
    memory_before_gb: float
    """Without."""
    fits: bool
    """Whether the upper end is within what a GPU has."""
    fitted_before: bool
    """Whether it is without."""
    step_time_s: float
    """Seconds of a step with it."""
    step_time_before_s: float
    """Without."""
    frameworks: list[str]
    """Those that can train so, the usual one first."""


@dataclass(frozen=True, slots=True)
class _Tried:
    layout: Layout
    """Without what whoever trains so has otherwise."""
    memory: MemoryEstimate
    time: TimeEstimate


def helpful_changes(
    shape: ModelShape,
    layout: Layout,
    hardware: Hardware,
    framework: str | None = None,
    kept: Mapping[str, Any] | None = None,
) -> list[LayoutChange]:
    """Return for each of the largest parts what would shrink it most cheaply, the largest part of memory first.

    A change is told once, but of a part that no other helps. For memory a change that makes it fit comes
    first, then the faster one; for time the faster one, of those that need no more memory than there is.

    Args:
        shape: the model.
        layout: how it is laid out.
        hardware: what it runs on.
        framework: the job's; what takes another one comes last. `None` where any will do.
        kept: what a person says of how it is trained, of `KEPT`; the rest is as whoever trains so has it.
    """
    hardware = hardware.corrected_for(layout.precision)
    now = _Tried(layout, memory_on(shape, layout, hardware), step_time(shape, layout, hardware))
    room = max(hardware.gpu.memory_bytes, now.memory.high)
    others = [
        _tried(shape, other, replace(usually_trained(other), **(kept or {})) if framework is None else other, hardware)
        for other in _changed(shape, layout, hardware)
    ]
    told: list[LayoutChange] = []

    def suits(item: _Tried) -> bool:
        return framework in (None, COMMAND) or framework in frameworks_of(item.layout)

    def add(of: Literal["memory", "time"], part: str, found: Sequence[_Tried]) -> None:
        best: dict[frozenset[str], LayoutChange] = {}
        for item in found:
            one = _change(of, part, now, item, hardware)
            best.setdefault(frozenset(one.changes), one)
        new = [one for one in best.values() if one.changes not in [other.changes for other in told]]
        new = new or list(best.values())[:1]
        told.extend(new[:1])
        # A further one has to be better in something.
        told.extend([one for one in new[1:] if _is_better(one, new[0])][: FOR_EACH - 1])

    for part in _largest(now.memory.parts):
        smaller = [
            item
            for item in others
            if item.memory.high < (1 - LEAST_GAIN) * now.memory.high
            and now.memory.parts[part] - item.memory.parts[part] > LEAST_GAIN * now.memory.high
        ]

        def by_memory(item: _Tried) -> tuple[bool, bool, float]:
            fits = item.memory.high <= hardware.gpu.memory_bytes
            return not suits(item), not fits, item.time.value if fits else item.memory.high

        add("memory", part, sorted(smaller, key=by_memory))
    for part in _largest(now.time.parts):
        faster = [
            item
            for item in others
            if item.time.value < (1 - LEAST_GAIN) * now.time.value
            and now.time.parts[part] - item.time.parts[part] > LEAST_GAIN * now.time.value
            and item.memory.high <= room
        ]
        add("time", part, sorted(faster, key=lambda item: (not suits(item), item.time.value)))
    return told


def _tried(shape: ModelShape, layout: Layout, trained: Layout, hardware: Hardware) -> _Tried:
    return _Tried(layout, memory_on(shape, trained, hardware), step_time(shape, trained, hardware))


def change_texts(found: Sequence[LayoutChange], framework: str | None = None) -> dict[tuple[str, str], list[str]]:
    """Return changes in words, by what they are of and the part; see `change_text`."""
    told: dict[tuple[str, str], list[str]] = {}
    for change in found:
        told.setdefault((change.of, change.part), []).append(change_text(change, framework))
    return told


def change_text(change: LayoutChange, framework: str | None = None) -> str:
    """Return a change in words: `recompute all activations (full): 192 → 66 GB (fits), step +23%`.

    Args:
        change: what was found.
        framework: the job's; another one that it takes is named.
    """
    told = [_field_text(name, value, change.changes) for name, value in change.changes.items()]
    words = ", ".join(text for text in told if text)
    slower = change.step_time_s / change.step_time_before_s - 1
    step = _("step {share}").format(share=f"{slower:+.0%}".replace("-", "−"))
    memory = _("{before} → {after} GB").format(
        before=f"{change.memory_before_gb:.0f}", after=f"{change.memory_per_gpu_gb:.0f}"
    )
    if not change.fits:
        memory += " " + _("(does not fit)")
    elif not change.fitted_before:
        memory += " " + _("(fits)")
    if change.of == "memory":
        figures = [memory, step]
    elif abs(change.memory_per_gpu_gb / change.memory_before_gb - 1) < LEAST_GAIN:
        figures = [step]
    else:
        figures = [step, memory]
    if framework not in (None, COMMAND, *change.frameworks) and change.frameworks:
        figures.append(_("by {framework}").format(framework=change.frameworks[0]))
    return f"{words}: {', '.join(figures)}"


def _field_text(name: str, value: int | str | bool, changes: dict[str, Any]) -> str:
    """Return what one field changes to; nothing of one that follows from another."""
    if name == "data" or (name == "sequence_parallel" and "tensor" in changes):
        return ""
    words = {
        ("recompute", "none"): _("recompute nothing"),
        ("recompute", "selective"): _("recompute attention alone (selective)"),
        ("recompute", "full"): _("recompute all activations (full)"),
        ("sequence_parallel", True): _("split the sequence too (sequence parallel)"),
        ("sequence_parallel", False): _("without sequence parallel"),
        ("offload", "optimizer"): _("optimizer in host memory"),
        ("offload", "all"): _("optimizer and parameters in host memory"),
    }
    numbers = {
        "zero_stage": _("ZeRO {value}"),
        "micro_batch": _("micro-batch {value}"),
        "tensor": _("tensor {value}"),
        "pipeline": _("pipeline {value}"),
        "virtual_stages": _("{value} chunks of layers a stage"),
        "precision": _("precision {value}"),
    }
    return words[name, value] if (name, value) in words else numbers[name].format(value=value)


def _change(of: Literal["memory", "time"], part: str, now: _Tried, item: _Tried, hardware: Hardware) -> LayoutChange:
    return LayoutChange(
        of=of,
        part=part,
        changes=_changes(now.layout, item.layout),
        memory_per_gpu_gb=item.memory.high / GB,
        memory_before_gb=now.memory.high / GB,
        fits=item.memory.high <= hardware.gpu.memory_bytes,
        fitted_before=now.memory.high <= hardware.gpu.memory_bytes,
        step_time_s=item.time.value,
        step_time_before_s=now.time.value,
        frameworks=frameworks_of(item.layout),
    )


def _is_better(one: LayoutChange, other: LayoutChange) -> bool:
    if one.of == "time":
        return one.memory_per_gpu_gb < (1 - LEAST_GAIN) * other.memory_per_gpu_gb
    return one.memory_per_gpu_gb < other.memory_per_gpu_gb or one.step_time_s < other.step_time_s


def _changes(before: Layout, after: Layout) -> dict[str, int | str | bool]:
    names = [field.name for field in fields(Layout)]
    return {name: getattr(after, name) for name in names if getattr(after, name) != getattr(before, name)}


def _largest(parts: dict[str, float]) -> list[str]:
    ranked = sorted(parts, key=lambda part: parts[part], reverse=True)
    return [part for part in ranked[:LARGEST] if parts[part] > 0]


def _changed(shape: ModelShape, layout: Layout, hardware: Hardware) -> Iterator[Layout]:
    """Yield the layouts that differ in one thing, can be, and that some framework trains in."""
    wrong = {fault.field for fault in faults(layout, shape, layout.ranks, hardware.gpus_per_node)}
    for other in _neighbours(layout, hardware):
        if other == layout or not other.micro_batch or not other.data or not frameworks_of(other):
            continue
        if {fault.field for fault in faults(other, shape, layout.ranks, hardware.gpus_per_node)} <= wrong:
            yield other


def _neighbours(layout: Layout, hardware: Hardware) -> Iterator[Layout]:
    if layout.data > 1:
        yield from (replace(layout, zero_stage=stage) for stage in range(4))
    yield from (replace(layout, recompute=kind) for kind in get_args(Recompute))
    yield from (replace(layout, micro_batch=size) for size in (layout.micro_batch // 2, layout.micro_batch * 2))
    if layout.tensor > 1:
        yield replace(layout, sequence_parallel=not layout.sequence_parallel)
    for tensor in (layout.tensor * 2, layout.tensor // 2):
        if 1 <= tensor <= hardware.linked:
            data = layout.ranks // (tensor * layout.pipeline * layout.context)
            yield replace(layout, tensor=tensor, data=data, sequence_parallel=tensor > 1)
    for pipeline in (layout.pipeline * 2, layout.pipeline // 2):
        if pipeline >= 1:
            chunks = layout.virtual_stages if pipeline > 1 else 1
            data = layout.ranks // (layout.tensor * pipeline * layout.context)
            yield replace(layout, pipeline=pipeline, data=data, virtual_stages=chunks)
    for tensor, pipeline in ((layout.tensor * 2, layout.pipeline // 2), (layout.tensor // 2, layout.pipeline * 2)):
        if tensor and pipeline and tensor <= hardware.linked and tensor * pipeline == layout.tensor * layout.pipeline:
            chunks = layout.virtual_stages if pipeline > 1 else 1
            other = replace(layout, tensor=tensor, pipeline=pipeline, virtual_stages=chunks)
            yield replace(other, sequence_parallel=tensor > 1)
    if layout.pipeline > 1:
        yield from (replace(layout, virtual_stages=chunks) for chunks in range(1, 17))
    if layout.tensor == layout.pipeline == 1 and (layout.zero_stage or layout.data == 1):
        yield replace(layout, offload="optimizer")
        if layout.zero_stage == 3:
            yield replace(layout, offload="all")
    if hardware.gpu.fp8 is not None and layout.precision in ("bf16", "fp16"):
        yield replace(layout, precision="fp8")
