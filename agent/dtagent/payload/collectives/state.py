"""Equal state on all ranks, after some were lost: what a training goes on from."""

from __future__ import annotations

import ctypes
import io
from typing import Any

import torch

from .communicator import DistributedCommunicator
from .operators import BroadcastOperator


def broadcast_state(comm: DistributedCommunicator, state: Any, root_rank: int = 0) -> Any:
    """Return one rank's state on all ranks: after `shrink` rank 0 is the lowest of those that are left.

    A rank may have taken a step that another has not when a collective was broken off, so all take over everything
    that a step changes: parameters, the optimizer's state, the number of the step.

    Args:
        comm: of this rank.
        state: dictionaries, lists and tuples of tensors, numbers and strings, as `state_dict()` returns; what the root
            brings counts alone, and the others may bring anything.
        root_rank: whose.

    Returns:
        On the root what it brought, elsewhere a copy of that, its tensors on the CPU. It is read by `torch.load` with
        `weights_only`, which runs no code.

    Raises: as `AllReduceOperator.all_reduce`.
    """
    if comm.rank != root_rank:
        found = BroadcastOperator(comm).broadcast(torch.empty(0, dtype=torch.uint8), root_rank)
        packed = io.BytesIO(ctypes.string_at(found.data_ptr(), found.numel()))
        return torch.load(packed, map_location="cpu", weights_only=True)
    written = io.BytesIO()
    try:
        torch.save(state, written)
    except Exception as error:
        told = f"the state cannot be packed: {type(error).__name__}: {error}"
        BroadcastOperator(comm).call(torch.empty(0), root=root_rank, fault=told)
        raise
    BroadcastOperator(comm).broadcast(torch.frombuffer(written.getbuffer(), dtype=torch.uint8), root_rank)
    return state
