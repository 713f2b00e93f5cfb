"""Ranks with a GPU each, over NCCL: what is large goes from GPU to GPU, and what ranks call by a gloo group beside it.

NCCL has neither time-outs that a rank survives nor tags, and a message that nobody takes holds up all that come after
it. So ranks agree over gloo what they do before NCCL is called, and all messages of a round are given to it at once.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .errors import START_AGAIN, CollectiveError
from .torch_group import TorchGroup

if TYPE_CHECKING:
    from .schedules import Schedule, Transfer

_PAUSE_S = 0.0001
_companions: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""Process group → the one over gloo of the same ranks."""


class NcclGroup(TorchGroup):
    """The ranks of a process group of torch's that has NCCL; all of them have to make it.

    `send` and `receive` go by the memory of the CPU.

    Args:
        group: by default that of all ranks.
        hosts: the ranks of each host, for algorithms that ask; by default all are on one.
        device: of this rank, by default the current GPU: say `torch.cuda.set_device` before.
    """

    remedy = START_AGAIN

    def __init__(
        self, group: Any = None, hosts: Sequence[Sequence[int]] | None = None, device: torch.device | str | None = None
    ) -> None:
        main: Any = group if group is not None else dist.group.WORLD
        self._ranks = dist.get_process_group_ranks(main)
        """Their numbers among all ranks, by which torch knows them."""
        target = torch.device(device) if device is not None else torch.device("cuda", torch.cuda.current_device())
        if main not in _companions:
            beside = dist.new_group(self._ranks, backend="gloo", use_local_synchronization=True)
            # The first that NCCL does has to be of all ranks; a round of a tree is of some.
            dist.all_reduce(torch.zeros(1, device=target), group=main)
            _companions[main] = beside
        super().__init__(_companions[main], hosts)
        self.name = "nccl"
        self.device = target
        self._main = main

    def regroup(self, rank: int, *, everyone: bool, timeout_s: float) -> tuple[TorchGroup, list[int]]:
        """Raise CollectiveError: a GPU may still wait for the rank that is lost."""
        raise CollectiveError(f"a group over NCCL is not made anew in a process that has lost a rank: {self.remedy}")

    def _carry_out(
        self, rounds: Schedule, vector: torch.Tensor, combine: Callable[..., torch.Tensor], deadline: float
    ) -> None:
        data = vector.view(torch.uint8) if vector.numel() else vector
        # Of a thread: the one that carries out what was begun has not said `set_device`.
        with torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
            for transfers in rounds:
                self._round([item for item in transfers if item.size], vector, data, combine, deadline)

    def _round(
        self,
        transfers: Sequence[Transfer],
        vector: torch.Tensor,
        data: torch.Tensor,
        combine: Callable[..., torch.Tensor],
        deadline: float,
    ) -> None:
        """Send and receive what a round says, all at once."""
        messages, came = [], []
        for item in transfers:
            width = vector.element_size()
            part = data[item.begin * width : item.end * width]
            if item.source == self.rank:
                messages.append(dist.P2POp(dist.isend, part, self._ranks[item.target], self._main))
                continue
            into = torch.empty_like(part) if item.reduces else part
            messages.append(dist.P2POp(dist.irecv, into, self._ranks[item.source], self._main))
            if item.reduces:
                came.append((item, into))
        if not messages:
            return
        peer = next(rank for item in transfers for rank in (item.source, item.target) if rank != self.rank)
        try:
            for work in dist.batch_isend_irecv(messages):
                self._finish(work, deadline)
        except (RuntimeError, TimeoutError) as error:
            self._abort()
            raise self._lost(str(error), peer) from error
        for item, message in came:
            own = vector[item.begin : item.end]
            combine(own, message.view(vector.dtype), out=own)

    def _finish(self, work: Any, deadline: float) -> None:
        """Wait for messages. Raises TimeoutError, and RuntimeError where NCCL has found that they failed."""
        while not work.is_completed():
            if time.monotonic() > deadline:
                raise TimeoutError("a GPU still waits for messages")
            time.sleep(_PAUSE_S)
        work.wait()  # What this rank's stream does next comes after them.

    def _abort(self) -> None:
        """Have the GPU not wait any more, where torch can tell NCCL so."""
        abort = getattr(self._main, "abort", None)
        if abort is not None:
            abort()
