"""The collectives of all ranks that `dttui bench` times: torch's own, and the operators' by each of their algorithms.

Of each this has what a rank brings and has to get, for a size; when and how often it is timed is `measuring`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist

from .communicator import DistributedCommunicator
from .schedules import ALGORITHMS, Collective

ELEMENT = 4
"""Bytes of a float32."""
NATIVE = "native"
"""In the place of an algorithm: torch's own collective."""
USUAL = (
    (Collective.ALL_REDUCE, NATIVE),
    (Collective.ALL_REDUCE, "ring"),
    (Collective.ALL_GATHER, NATIVE),
    (Collective.REDUCE_SCATTER, NATIVE),
    (Collective.BROADCAST, NATIVE),
)
"""What says most of a training; it is timed before all else."""
_IN_PLACE = (Collective.ALL_REDUCE, Collective.BROADCAST)
"""Whose result takes the place of what was brought."""


class SizedWork(NamedTuple):
    """A piece of work of one size, of this rank; of ranks that have no part in it, nothing."""

    size: int
    """Bytes, as nccl-tests counts them."""
    prepare: Callable[[], object]
    work: Callable[[], object]
    wrong: Callable[[], int]
    """How many elements of the last result are not what they have to be."""
    has_room: bool = True
    """Whether there was memory for it."""


class TimedCollective(NamedTuple):
    """A collective of all ranks, by one algorithm."""

    kind: Collective
    algorithm: str
    """`NATIVE`, or one of the operators'."""
    make: Callable[[int], SizedWork]
    """Returns this rank's work of a size in bytes; raises what torch raises where there is no memory for it."""


def timed_collectives(comm: DistributedCommunicator, device: torch.device) -> list[TimedCollective]:
    """Return what there is to time between these ranks, what says most of a training first.

    A butterfly is of a number of ranks that is a power of two, and what is hierarchical of several hosts with several
    ranks: of others it is another algorithm, with more rounds or by another name.

    Args:
        comm: of all ranks.
        device: where tensors lie.
    """
    hosts = comm.group.hosts or [range(comm.world_size)]
    fits = {
        "butterfly": comm.world_size & (comm.world_size - 1) == 0,
        "hierarchical": 1 < len(hosts) < comm.world_size,
    }
    operators = ((kind, algorithm) for kind, algorithms in ALGORITHMS.items() for algorithm in algorithms)
    return [
        TimedCollective(kind, algorithm, _Maker(comm, device, kind, algorithm))
        for kind, algorithm in dict.fromkeys([*USUAL, *operators])
        if fits.get(algorithm, True)
    ]


class _Maker:
    """Makes the work of a collective, of any size: rank r brings r + 1 in each element, and rank 0 is the root."""

    def __init__(self, comm: DistributedCommunicator, device: torch.device, kind: Collective, algorithm: str) -> None:
        self._comm, self._device = comm, device
        self._kind, self._algorithm = kind, algorithm

    def __call__(self, size: int) -> SizedWork:
        ranks, kind, is_native = self._comm.world_size, self._kind, self._algorithm == NATIVE
        part = max(1, size // ELEMENT // ranks)  # Of each rank, of what is made of parts.
        brought, due = self._brought(size, part), self._due(part)
        room: torch.Tensor | None = None
        if kind not in _IN_PLACE:
            # An operator takes as much anew each time: whether it is there is found out here, where that ends nothing.
            room = self._full(part if is_native and kind is Collective.REDUCE_SCATTER else part * ranks, 0.0)
        result = brought

        def prepare() -> None:
            nonlocal result, room
            result, room = brought, room if is_native else None
            if kind is not Collective.SCATTER:
                brought.fill_(self._comm.rank + 1.0)

        def work() -> None:
            nonlocal result
            if is_native:
                result = self._native(brought, room)
            else:
                in_place = kind in _IN_PLACE
                result = self._comm.call(kind, brought, algorithm=self._algorithm, in_place=in_place)

        told = size if kind in _IN_PLACE else part * ranks * ELEMENT
        return SizedWork(told, prepare, work, lambda: int((result != due).sum()))

    def _brought(self, size: int, part: int) -> torch.Tensor:
        """Return what this rank brings; what a root alone has to bring is empty elsewhere."""
        if self._kind is Collective.SCATTER:
            return self._of_all(part) if self._comm.rank == 0 else self._full(0, 0.0)
        elements = part * self._comm.world_size if self._kind is Collective.REDUCE_SCATTER else part
        return self._full(size // ELEMENT if self._kind in _IN_PLACE else elements, self._comm.rank + 1.0)

    def _due(self, part: int) -> torch.Tensor | float:
        """Return what this rank has to get, element by element or in all of them."""
        rank, ranks = self._comm.rank, self._comm.world_size
        if self._kind in (Collective.ALL_GATHER, Collective.GATHER):
            return self._of_all(part) if self._kind is Collective.ALL_GATHER or rank == 0 else self._full(0, 0.0)
        return {Collective.BROADCAST: 1.0, Collective.SCATTER: rank + 1.0}.get(self._kind, ranks * (ranks + 1) / 2)

    def _of_all(self, part: int) -> torch.Tensor:
        """Return the parts of all ranks, one after another."""
        each = torch.arange(1, self._comm.world_size + 1, dtype=torch.float32, device=self._device)
        return each.repeat_interleave(part)

    def _full(self, elements: int, value: float) -> torch.Tensor:
        return torch.full((elements,), value, device=self._device)

    def _native(self, brought: torch.Tensor, got: torch.Tensor | None) -> torch.Tensor:
        """Take part in torch's own collective; return the result, which is in one of the two."""
        if self._kind is Collective.ALL_REDUCE:
            dist.all_reduce(brought)
        elif self._kind is Collective.BROADCAST:
            dist.broadcast(brought, 0)
        elif self._kind is Collective.ALL_GATHER:
            dist.all_gather_into_tensor(got, brought)
        else:
            dist.reduce_scatter_tensor(got, brought)
        return brought if got is None else got
