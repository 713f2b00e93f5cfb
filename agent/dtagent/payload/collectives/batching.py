"""Many small tensors reduced by few collectives: one for each type and device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from .pending import PendingTensor

if TYPE_CHECKING:
    from .operators import AllReduceOperator


def batch_all_reduce(
    tensors: Iterable[torch.Tensor], all_reduce_op: AllReduceOperator, op: str = "sum"
) -> list[torch.Tensor]:
    """Return the reduced tensors, each of its own shape and type.

    Args:
        tensors: of this rank; on all ranks of the same shapes and types in the same order.
        all_reduce_op: of this rank.
        op: as of `AllReduceOperator.all_reduce`.

    Raises: as `AllReduceOperator.all_reduce`.
    """
    tensors = [*tensors] if isinstance(tensors, Iterable) else [tensors]
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            return [all_reduce_op.all_reduce(tensor, op)]  # Which tells all ranks.
    groups: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for place, tensor in enumerate(tensors):
        groups.setdefault((tensor.dtype, tensor.device), []).append(place)
    found: dict[int, torch.Tensor] = {}
    for places in groups.values():
        together = torch.cat([tensors[place].detach().reshape(-1) for place in places])
        reduced = all_reduce_op.all_reduce(together, op, in_place=True)
        begin = 0
        for place in places:
            end = begin + tensors[place].numel()
            found[place] = _part(reduced, begin, end, tensors[place])
            begin = end
    return [found[place] for place in range(len(tensors))]


def _part(reduced: torch.Tensor, begin: int, end: int, like: torch.Tensor) -> torch.Tensor:
    if not isinstance(reduced, PendingTensor):
        return reduced[begin:end].view(like.shape)
    return reduced.derived(lambda values: values[begin:end].view(like.shape), like)
