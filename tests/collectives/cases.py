"""Collectives chosen by chance: what each is, what ranks bring to it, and what torch's own make of that."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from dtagent.payload.collectives import (
    AllGatherOperator,
    AllReduceOperator,
    BroadcastOperator,
    Collective,
    DistributedCommunicator,
    GatherOperator,
    ReduceScatterOperator,
    ScatterOperator,
)

MOST_RANKS = 9


class Case(NamedTuple):
    """One collective. As JSON it is a list."""

    world_size: int
    kind: str
    algorithm: str
    shape: list[int]
    """Of what a rank brings; where they may differ, rank r brings r rows more or less, by `uneven`."""
    uneven: bool
    dtype: str
    op: str
    root: int
    in_place: bool
    is_transposed: bool
    """Whether what is brought lies in memory otherwise than its values follow each other."""
    seed: int


_GATHERED = (Collective.ALL_GATHER, Collective.GATHER)


def brought(case: Case, rank: int) -> torch.Tensor:
    """Return what a rank brings: small whole numbers, whose sums are exact in each type."""
    shape = list(case.shape)
    if case.uneven and shape and Collective(case.kind) in _GATHERED:
        shape[0] = max(0, shape[0] + random.Random(case.seed + rank).randint(-2, 2))
    numbers = torch.Generator().manual_seed(case.seed * 16 + rank)
    made = torch.randint(0, 5, shape, generator=numbers).to(getattr(torch, case.dtype))
    return made.mT.contiguous().mT if case.is_transposed and made.dim() > 1 else made


def expected(case: Case, rank: int) -> torch.Tensor:
    """Return what a rank has to get, as torch's own functions make it of what all bring."""
    kind, everyone = Collective(case.kind), range(case.world_size)
    if kind in (Collective.BROADCAST, Collective.SCATTER):
        given = brought(case, case.root)
        return given if kind is Collective.BROADCAST else torch.tensor_split(given, case.world_size)[rank]
    of_all = [brought(case, other) for other in everyone]
    if kind in _GATHERED:
        rows = torch.cat([item.reshape(1) if not item.dim() else item for item in of_all])
        return rows if kind is Collective.ALL_GATHER or rank == case.root else rows[:0]
    reduced = _reduced(torch.stack(of_all), case.op)
    return reduced if kind is Collective.ALL_REDUCE else torch.tensor_split(reduced, case.world_size)[rank]


def _reduced(found: torch.Tensor, op: str) -> torch.Tensor:
    if op in ("sum", "mean"):
        total = found.any(0) if found.dtype is torch.bool else found.sum(0, dtype=found.dtype)
        return total / len(found) if op == "mean" else total
    return found.amax(0) if op == "max" else found.amin(0)


def called(case: Case, comm: DistributedCommunicator) -> tuple[torch.Tensor, torch.Tensor]:
    """Call the collective as a rank; return what it has brought, after that, and what it gets."""
    receives = Collective(case.kind) in (Collective.BROADCAST, Collective.SCATTER) and comm.rank != case.root
    own = torch.empty(0) if receives and case.uneven else brought(case, comm.rank)
    if receives and not case.uneven:
        own = torch.zeros_like(own)
    if case.kind == Collective.ALL_REDUCE:
        return own, AllReduceOperator(comm, case.algorithm).all_reduce(own, case.op, in_place=case.in_place)
    if case.kind == Collective.REDUCE_SCATTER:
        return own, ReduceScatterOperator(comm, case.algorithm).reduce_scatter(own, case.op)
    if case.kind == Collective.BROADCAST:
        return own, BroadcastOperator(comm, case.algorithm).broadcast(own, case.root, in_place=case.in_place)
    if case.kind == Collective.GATHER:
        return own, GatherOperator(comm, case.algorithm).gather(own, case.root)
    if case.kind == Collective.SCATTER:
        return own, ScatterOperator(comm, case.algorithm).scatter(own, case.root)
    return own, AllGatherOperator(comm, case.algorithm).all_gather(own)


def mistake(case: Case, rank: int, own: torch.Tensor, found: torch.Tensor) -> str:
    """Return what is wrong with a result; nothing where it is as it should be."""
    due = expected(case, rank)
    if found.dtype != due.dtype or found.shape != due.shape:
        return f"rank {rank} got {tuple(found.shape)} of {found.dtype} instead of {tuple(due.shape)} of {due.dtype}"
    if not torch.equal(found, due):
        return f"rank {rank} got {found} instead of {due}"
    is_in_place = case.in_place and case.kind in (Collective.ALL_REDUCE, Collective.BROADCAST)
    if is_in_place and (own.shape, own.dtype) == (due.shape, due.dtype) and not torch.equal(own, due):
        return f"rank {rank} holds {own} instead of {due}"
    receives = case.kind in (Collective.BROADCAST, Collective.SCATTER) and rank != case.root
    if not is_in_place and not receives and not torch.equal(own, brought(case, rank)):
        return f"what rank {rank} has brought became {own}"
    return ""


def by_torch(case: Case, own: torch.Tensor, group: Any) -> torch.Tensor | None:
    """Return what torch.distributed's own collective gives this rank; `None` where it has none for that.

    Args:
        case: which.
        own: what the rank brings.
        group: torch's process group.
    """
    ops = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
    tensor = own.contiguous().clone()
    if case.dtype in ("bool", "bfloat16", "complex64") or case.uneven or not tensor.numel():
        return None
    if case.kind == Collective.ALL_REDUCE and case.op in ops:
        dist.all_reduce(tensor, ops[case.op], group=group)
        return tensor
    if case.kind == Collective.BROADCAST:
        dist.broadcast(tensor, dist.get_global_rank(group, case.root), group=group)
        return tensor
    if case.kind == Collective.ALL_GATHER and tensor.dim():
        of_all = [torch.empty_like(tensor) for _ in range(case.world_size)]
        dist.all_gather(of_all, tensor, group=group)
        return torch.cat(of_all)
    return None
