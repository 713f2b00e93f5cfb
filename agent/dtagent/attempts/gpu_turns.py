"""Which of the free GPUs of a host a job may have, with those who come before it. Pure.

Some name the GPUs that they want, others take any. Who names his keeps just those for himself, so that he holds back
nobody who wants others; who takes any has as many kept for him as he wants, of those that nobody before has named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from dtagent.system.gpu_line import Waiter

Named = Callable[[Waiter], AbstractSet[int]]
"""The GPUs that somebody has named and that are here, by their numbers."""


class GpuOffer(NamedTuple):
    """What a job may take."""

    indices: list[int]
    """The most wanted first."""
    leaves: int = 0
    """How many of these are for others."""

    @property
    def number(self) -> int:
        """How many it may take."""
        return max(0, len(self.indices) - self.leaves)


def offer(
    free: Sequence[int], wanted: Sequence[int], before: Sequence[Waiter], waiters: Sequence[Waiter], named: Named
) -> GpuOffer:
    """Return what is for one who asks.

    Args:
        free: GPUs that nobody has.
        wanted: those that he names; none where any will do.
        before: who comes before him.
        waiters: all who wait: what one of them has named is taken last where any will do.
        named: what each of them has named.
    """
    kept = {index for waiter in before for index in named(waiter)}
    left = [index for index in free if index not in kept]
    leaves = sum(waiter.ticket.gpus for waiter in before if not waiter.ticket.named)
    if wanted:
        mine = [index for index in wanted if index in left]
        return GpuOffer(mine[: max(0, len(left) - leaves)])
    sought = {index for waiter in waiters for index in named(waiter)}
    return GpuOffer(sorted(left, key=lambda index: index in sought), leaves)


def in_the_way(before: Sequence[Waiter], wanted: Sequence[int], named: Named) -> list[Waiter]:
    """Return who, of those who come before, may get what is wanted: not who has named other GPUs alone."""
    return [waiter for waiter in before if not (wanted and waiter.ticket.named and not named(waiter) & {*wanted})]
