"""The arithmetic of batches: samples a step = micro-batch × accumulation steps × data parallel degree. Pure."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from dttui.i18n import _
from dttui.spec.findings import Finding, warning
from dttui.spec.models import Strategy
from dttui.spec.problems import format_path

_TOTAL = ("strategy", "data_parallel", "batch_size")


@dataclass(frozen=True)
class Batches:
    """Sizes that agree with each other at a data parallel degree."""

    total: int
    """Samples a step, of all ranks together."""
    micro: int
    """Samples of a rank in one forward and backward pass."""
    steps: int
    """Passes a step."""


def solve(
    degree: int, *, total: int | None = None, micro: int | None = None, steps: int | None = None, stages: int = 1
) -> Batches | None:
    """Return all three sizes from those that are given; `None` where they cannot agree.

    What is left open is as the estimates take it: one pass a step, or micro-batches of one sample and four of them a
    stage where there is a pipeline to be filled.

    Args:
        degree: data parallel degree.
        total: samples a step.
        micro: samples a micro-batch.
        steps: micro-batches a step.
        stages: pipeline stages.
    """
    if total is None:
        micro, steps = micro or 1, steps or (1 if stages == 1 else 4 * stages)
        return Batches(micro * steps * degree, micro, steps)
    share, rest = divmod(total, degree)
    if micro is None:
        micro = share // steps if steps is not None else share if stages == 1 else 1
    if steps is None:
        steps = share // micro if micro else 0
    return Batches(total, micro, steps) if share and not rest and micro * steps == share else None


def nearest_totals(degree: int, *, total: int, micro: int | None = None, steps: int | None = None) -> tuple[int, ...]:
    """Return the sizes of a step nearest to `total` that fit the other numbers, the smaller first."""
    unit = degree * (micro or 1) * (steps or 1)
    if micro is not None and steps is not None:
        return (unit,)
    below = total // unit * unit
    return tuple(size for size in (below, below + unit) if size)


def nearest_parts(degree: int, *, total: int, part: int, other: int | None = None) -> tuple[int, ...]:
    """Return what a micro-batch, or the number of them, may be instead of `part`, the smaller first.

    Args:
        degree: data parallel degree.
        total: samples a step.
        part: what it is, and cannot stay.
        other: the other of the two, where it is given.
    """
    share, rest = divmod(total, degree)
    if rest or not share:
        return ()
    if other is not None:
        return () if share % other else (share // other,)
    divisors = [size for size in range(1, math.isqrt(share) + 1) if share % size == 0]
    divisors += [share // size for size in reversed(divisors)]
    below = [size for size in divisors if size < part][-1:]
    above = [size for size in divisors if size > part][:1]
    return (*below, *above)


def shares_by_speed(total: int, speeds: Sequence[float]) -> tuple[int, ...]:
    """Return how many samples of a step each rank gets so that the last one is done as early as can be.

    Each gets one at least, and together they are `total` exactly. What is left of whole shares goes, one by one, to who
    is done with it first, which is the best there is (Graham 1969, for equal jobs on uniform machines).

    Args:
        total: samples a step, one a rank at least.
        speeds: samples that a rank computes in some unit of time, above 0.

    Raises:
        ValueError: there are more ranks than samples.
    """
    if total < len(speeds):
        raise ValueError(f"{total} samples for {len(speeds)} ranks")
    whole = (total - len(speeds)) / math.fsum(speeds)
    shares = [max(1, math.floor(whole * speed)) for speed in speeds]
    waiting = [((shares[rank] + 1) / speed, rank) for rank, speed in enumerate(speeds)]
    heapq.heapify(waiting)
    for _sample in range(total - sum(shares)):
        _done_at, rank = waiting[0]
        shares[rank] += 1
        heapq.heapreplace(waiting, ((shares[rank] + 1) / speeds[rank], rank))
    return tuple(shares)


def check_shares(strategy: Strategy, world_size: int) -> list[Finding]:
    """Return a warning where a step's samples make no equal shares, which only the script knows what to do with."""
    copy = (strategy.tensor_parallel_size or 1) * (strategy.pipeline_degree or 1)
    data = strategy.data_parallel
    total = data.batch_size if data is not None and data.has_equal_shares else None
    if total is None or world_size % copy:
        return []
    micro = strategy.pipeline_parallel.micro_batch_size if strategy.pipeline_parallel is not None else None
    degree = world_size // copy
    if solve(degree, total=total, micro=micro) is not None:
        return []
    message = _("{total} samples a step cannot be shared out evenly among {count} copies of the model")
    if micro is not None:
        message = _("{total} samples a step make no whole micro-batches of {size} for {count} copies of the model")
    message = message.format(total=total, size=micro, count=degree)
    sizes = _(" or ").join(map(str, nearest_totals(degree, total=total, micro=micro)))
    return [
        warning(
            "batch-size",
            format_path(_TOTAL),
            message,
            _("What fits is {choices}.").format(choices=f"{_TOTAL[-1]}: {sizes}"),
            path=_TOTAL,
        )
    ]
