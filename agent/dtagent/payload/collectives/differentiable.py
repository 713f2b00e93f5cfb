"""Collectives inside of a model: what goes back through them when gradients are computed.

What a rank has gathered of another, it gives a gradient for back to that; what it gave to a reduced tensor gets one
from each rank that has rows of it: either collective is the other's backward pass. So a loss that is the sum of what
ranks compute has the gradients that it has in one process. All ranks go back through their collectives in one order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .errors import CollectiveError
from .requests import REQUIRES_GRAD
from .schedules import Collective

if TYPE_CHECKING:
    from .communicator import DistributedCommunicator

    Call = Callable[..., torch.Tensor]
    """An operator's, with its algorithm and what it logs."""


class GatheredRows(torch.autograd.Function):
    """An all-gather; backwards the gradients that all ranks have for this rank's rows are added."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, call: Call, comm: DistributedCommunicator) -> torch.Tensor:
        """Return the rows of all ranks; how many each brings is asked besides, as gradients go back by it."""
        own = torch.tensor([len(tensor) if tensor.dim() else 1])
        lengths = comm.call(Collective.ALL_GATHER, own, compression=REQUIRES_GRAD).tolist()
        ctx.comm, ctx.shape = comm, tensor.shape
        ctx.begin, ctx.rows = sum(lengths[: comm.rank]), lengths[comm.rank]
        # As a reduce-scatter shares rows out.
        ctx.is_even = lengths == sorted(lengths, reverse=True) and max(lengths) - min(lengths) <= 1
        return call(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Return the gradient of this rank's rows."""
        (grad,) = grads
        if ctx.is_even:
            found = ctx.comm.call(Collective.REDUCE_SCATTER, grad.contiguous())
        else:
            found = ctx.comm.call(Collective.ALL_REDUCE, grad.contiguous())[ctx.begin : ctx.begin + ctx.rows]
        return found.reshape(ctx.shape), None, None


class ScatteredRows(torch.autograd.Function):
    """A reduce-scatter; backwards the gradients for all rows are gathered from those who have them."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, call: Call, comm: DistributedCommunicator, op: str) -> torch.Tensor:
        """Return this rank's rows."""
        ctx.comm, ctx.op = comm, op
        return call(tensor, op=op)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """Return the gradient of what this rank brought."""
        if ctx.op not in ("sum", "mean"):
            raise CollectiveError(f"there is no gradient of a reduce-scatter by {ctx.op}: take sum or mean")
        found = ctx.comm.call(Collective.ALL_GATHER, grads[0].contiguous())
        return (found / ctx.comm.world_size if ctx.op == "mean" else found), None, None, None
