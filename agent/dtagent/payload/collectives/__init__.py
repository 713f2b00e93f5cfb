"""Collective operators (seed 003), in the user's own interpreter: standard library and torch only.

`schedules` says who sends what to whom; `requests` whether what ranks call goes together; `simulated` carries it inside
of one process; `operators` is what a training script uses. `simulate` has the time of a schedule by a virtual clock.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .choosing import KnownLinks
from .clock import NetworkLink, Timeline, simulate
from .schedules import Collective, even_cuts, schedule_of

if TYPE_CHECKING:
    from .batching import batch_all_reduce
    from .buffers import CommunicationBuffer
    from .communicator import DistributedCommunicator, create_ring_topology, mpi_communicator
    from .compression import Compression, HalfPrecision, PowerSgd, TopK, job_compression
    from .errors import CollectiveError, CollectiveTimeoutError, MismatchError, PendingError
    from .handles import CollectiveHandle
    from .operators import (
        AllGatherOperator,
        AllReduceOperator,
        BroadcastOperator,
        GatherOperator,
        ReduceScatterOperator,
        ScatterOperator,
    )
    from .state import broadcast_state
    from .synchronizer import GradientSynchronizer
    from .torch_parallel import data_parallel
    from .watching import monitor_communication, safe_all_reduce

__all__ = [
    "AllGatherOperator",
    "AllReduceOperator",
    "BroadcastOperator",
    "Collective",
    "CollectiveError",
    "CollectiveHandle",
    "CollectiveTimeoutError",
    "CommunicationBuffer",
    "Compression",
    "DistributedCommunicator",
    "GatherOperator",
    "GradientSynchronizer",
    "HalfPrecision",
    "KnownLinks",
    "MismatchError",
    "NetworkLink",
    "PendingError",
    "PowerSgd",
    "ReduceScatterOperator",
    "ScatterOperator",
    "Timeline",
    "TopK",
    "batch_all_reduce",
    "broadcast_state",
    "create_ring_topology",
    "data_parallel",
    "even_cuts",
    "job_compression",
    "monitor_communication",
    "mpi_communicator",
    "safe_all_reduce",
    "schedule_of",
    "simulate",
]


_HOMES = {
    "batch_all_reduce": "batching",
    "CommunicationBuffer": "buffers",
    "DistributedCommunicator": "communicator",
    "create_ring_topology": "communicator",
    "Compression": "compression",
    "HalfPrecision": "compression",
    "PowerSgd": "compression",
    "TopK": "compression",
    "CollectiveError": "errors",
    "CollectiveTimeoutError": "errors",
    "MismatchError": "errors",
    "PendingError": "errors",
    "CollectiveHandle": "handles",
    "job_compression": "compression",
    "mpi_communicator": "communicator",
    "AllGatherOperator": "operators",
    "AllReduceOperator": "operators",
    "BroadcastOperator": "operators",
    "GatherOperator": "operators",
    "ReduceScatterOperator": "operators",
    "ScatterOperator": "operators",
    "broadcast_state": "state",
    "GradientSynchronizer": "synchronizer",
    "data_parallel": "torch_parallel",
    "monitor_communication": "watching",
    "safe_all_reduce": "watching",
}
"""Name → the module that has it, and wants torch, which takes seconds to import: the schedules are of use without."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise ModuleNotFoundError("dttui_collectives needs torch: pip install torch", name="torch") from None
    globals()[name] = found
    return found
