"""What the GPUs of a job did while nothing was heard of it: computed, waited in a collective, or nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dttui.diagnosis.gpu_readings import GpuPlace, GpuReadings, middle
from dttui.i18n import Message, in_a_row, joined, msg, nmsg

IDLE_PERCENT = 5
BUSY_PERCENT = 90
POWER_SHARE = 0.5
"""Of its limit: a GPU that computes draws more; a kernel of NCCL that waits for others a quarter or so."""
MEMORY_PERCENT = 20
"""Of the time: a GPU that computes uses its memory for more; who waits looks at one flag of it."""
MOST_NAMED = 2
"""GPUs that differ from the others and are named; more are counted."""
MOST_TOLD = 64
"""GPUs in the data of an event."""


class GpuUse(Enum):
    """What a GPU did."""

    IDLES = "idles"
    SPINS = "spins"
    """A kernel runs all the time, with little power and little use of memory: it waits for others."""
    COMPUTES = "computes"
    BUSY = "busy"
    """A kernel runs all the time; what it does is not known."""
    AT_TIMES = "at times"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class UsedGpu:
    """A GPU and what it did; figures are medians, `None` where nothing was read."""

    place: GpuPlace
    rank: int
    use: GpuUse
    utilization_percent: float | None
    power_share: float | None
    """Of its limit, 0 to 1."""
    memory_utilization_percent: float | None


def uses_of(found: Iterable[GpuReadings]) -> tuple[UsedGpu, ...]:
    """Return what each GPU did over the time of its readings."""
    return tuple(map(_used, found))


def all_compute(used: Sequence[UsedGpu]) -> bool:
    """Whether it is plain of every GPU, and there is one, that it computes."""
    return bool(used) and all(item.use is GpuUse.COMPUTES for item in used)


def sentence(used: Sequence[UsedGpu]) -> str:
    """Return in words what they did; empty where nothing is known of any. Follows `while`."""
    groups: dict[GpuUse, list[UsedGpu]] = {}
    for item in used:
        groups.setdefault(item.use, []).append(item)
    if not set(groups) - {GpuUse.UNKNOWN}:
        return ""
    largest_first = sorted(groups.items(), key=lambda item: -len(item[1]))
    return joined(", ", (_words(use, items, len(used)) for use, items in largest_first))


def to_data(used: Sequence[UsedGpu]) -> dict[str, Any]:
    """Return it as the data of an event: how many did what, and each, of the first ones."""
    uses = [item.use for item in used]
    counts = {use.value: uses.count(use) for use in GpuUse if use in uses}
    each = [
        {
            "node": item.place.node,
            "gpu": item.place.gpu,
            "rank": item.rank,
            "use": item.use.value,
            "utilization_percent": item.utilization_percent,
            "power_share": item.power_share,
            "memory_utilization_percent": item.memory_utilization_percent,
        }
        for item in used[:MOST_TOLD]
    ]
    return {"counts": counts, "gpus": each}


def _used(of: GpuReadings) -> UsedGpu:
    busy = middle(item.utilization_percent for item in of.readings) if not of.is_cut_up else None
    shares = (
        item.power_w / item.power_limit_w if item.power_w is not None and item.power_limit_w else None
        for item in of.readings
    )
    power, memory = middle(shares), middle(item.memory_utilization_percent for item in of.readings)
    power = round(power, 2) if power is not None else None
    return UsedGpu(of.place, of.rank, _use(busy, power, memory), busy, power, memory)


def _use(busy: float | None, power: float | None, memory: float | None) -> GpuUse:
    if busy is None:
        return GpuUse.UNKNOWN
    if busy <= IDLE_PERCENT:
        return GpuUse.IDLES
    if busy < BUSY_PERCENT:
        return GpuUse.AT_TIMES
    if (power or 0.0) >= POWER_SHARE or (memory or 0.0) >= MEMORY_PERCENT:
        return GpuUse.COMPUTES
    return GpuUse.SPINS if power is not None else GpuUse.BUSY


def _words(use: GpuUse, items: Sequence[UsedGpu], count: int) -> Message:
    number = len(items)
    busy, power = (middle(values) or 0.0 for values in zip(*map(_figures, items), strict=True))
    values: dict[str, Any] = {"gpus": _who(items, count), "busy": busy, "power": f"{power:.0%}"}
    if use is GpuUse.IDLES:
        return nmsg("{gpus} idles", "{gpus} idle", number, **values)
    if use is GpuUse.SPINS:
        return nmsg(
            "{gpus} spins ({busy:.0f} % busy with {power} of its power)",
            "{gpus} spin ({busy:.0f} % busy with {power} of their power)",
            number,
            **values,
        )
    if use is GpuUse.COMPUTES:
        return nmsg("{gpus} computes", "{gpus} compute", number, **values)
    if use is GpuUse.UNKNOWN:
        return msg("nothing is known of {gpus}", **values)
    return nmsg("{gpus} is {busy:.0f} % busy", "{gpus} are {busy:.0f} % busy", number, **values)


def _figures(item: UsedGpu) -> tuple[float | None, float | None]:
    return item.utilization_percent, item.power_share


def _who(items: Sequence[UsedGpu], count: int) -> str:
    if len(items) == count:
        return nmsg("the GPU", "all {count} GPUs", count)
    if len(items) <= MOST_NAMED:
        return in_a_row(msg("GPU {gpu} on {host}", gpu=item.place.gpu, host=item.place.node) for item in items)
    return nmsg("{some} of {count} GPU", "{some} of {count} GPUs", count, some=len(items))
