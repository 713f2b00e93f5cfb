"""How one rank reaches the others: seed 003's communicator, on whatever carries it."""

from __future__ import annotations

import math
import operator
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .backend import Backend
from .choosing import KnownLinks
from .errors import CollectiveError, ThreadRefusedError
from .handles import CollectiveHandle, PendingHandle, UnwatchedHandle, queue_of
from .message_passing import MessageGroup
from .nccl_group import NcclGroup
from .requests import request
from .schedules import Collective
from .simulated import SimulatedGroup
from .torch_group import TorchGroup, backend_of

TIMEOUT_S = 300.0
"""How long ranks are waited for, where nothing else is said."""
MOST_TAGS = 1 << 20
"""Tags of messages are below; the others are those of collectives."""
_FOR_EVER_S = 1e8
"""Three years: what is longer is more than some clocks take."""


class DistributedCommunicator:
    """One rank among several.

    Without a group it is of torch's process group, where that has been made and is of this size. Else ranks meet in
    this process, and are of one group as long as each is there once: rank 0 and rank 1 of 2, and another rank 0 begins
    the next. Keep each until all are made: whoever comes after one is gone begins anew. `create_ring_topology` makes a
    whole group of this process.

    Args:
        rank: of this one, from 0.
        world_size: how many there are.
        group: what carries it.
        timeout_s: how long other ranks are waited for.

    Raises:
        CollectiveError: there is no such rank.
    """

    def __init__(
        self, rank: int, world_size: int, group: Backend | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        world_size = _world_size(world_size)
        self.rank = _rank(rank, world_size)
        self.world_size = world_size
        self.original_ranks: tuple[int, ...] = tuple(range(world_size))
        """By rank, what number each had at first, before any `shrink`."""
        self.timeout_s, fault = _waiting_s(timeout_s, TIMEOUT_S)
        if fault:
            raise CollectiveError(fault)
        self.group: Backend = (
            group if group is not None else _torch_group(self.rank, world_size) or _meeting_point(self)
        )

    @property
    def original_rank(self) -> int:
        """The number that this rank had at first."""
        return self.original_ranks[self.rank]

    @property
    def backend(self) -> str:
        """What carries it."""
        return self.group.name

    @property
    def network_s(self) -> float | None:
        """What the collectives of its group so far would take on the network that a simulated one was given."""
        return self.group.network_s if isinstance(self.group, SimulatedGroup) and self.group.network else None

    def send(self, data: torch.Tensor, dst_rank: int, tag: int = 0) -> None:
        """Send a tensor to a rank, with a tag from 0 to 1048575. Raises CollectiveError where there is no such rank."""
        self._check(dst_rank, tag)
        _check_message(data)
        self.group.send(data, self.rank, dst_rank, tag)

    def recv(self, src_rank: int, shape: Sequence[int] | torch.Size, dtype: torch.dtype, tag: int = 0) -> torch.Tensor:
        """Return the next tensor that a rank has sent with a tag.

        Raises:
            CollectiveError: there is no such rank.
            CollectiveTimeoutError: nothing came in time.
            MismatchError: it is of another shape or type.
        """
        self._check(src_rank, tag)
        return queue_of(self.group, self.rank, "recv", src_rank, tag).in_turn(
            lambda: self.group.receive(src_rank, self.rank, tuple(shape), dtype, tag, self.timeout_s)
        )

    def isend(self, data: torch.Tensor, dst_rank: int, tag: int = 0) -> CollectiveHandle:
        """Begin to send a tensor, from its own memory where that can be; leave it alone until it has completed.

        Messages of one tag arrive in the order in which `send` and this were called. `wait` of the handle returns the
        tensor, and raises CollectiveTimeoutError where it is not received in time.

        Raises CollectiveError where there is no such rank, or the back-end cannot do it.
        """
        self._check(dst_rank, tag, in_threads=True)
        _check_message(data)
        wait = self.group.begin_send(data, self.rank, dst_rank, tag, self.timeout_s)
        if not self.waits:
            return PendingHandle(wait)
        try:
            return queue_of(self.group, self.rank, "isend", dst_rank, tag).start(wait)
        except ThreadRefusedError:  # It is on its way all the same.
            return UnwatchedHandle(wait)

    def irecv(
        self, src_rank: int, shape: Sequence[int] | torch.Size, dtype: torch.dtype, tag: int = 0
    ) -> CollectiveHandle:
        """Begin what `recv` does, and return without waiting for it: what `recv` raises, `wait` of the handle does.

        Of one rank and tag, what was begun first gets what was sent first, and `recv` takes its turn behind it.

        Raises CollectiveError where there is no such rank, or the back-end cannot do it, and where the system has no
        thread for it.
        """
        self._check(src_rank, tag, in_threads=True)
        sizes = tuple(shape)
        return self._begun(
            lambda: self.group.receive(src_rank, self.rank, sizes, dtype, tag, self.timeout_s), "recv", src_rank, tag
        )

    def barrier(self) -> None:
        """Wait until all ranks are here. Raises CollectiveTimeoutError where some do not come in time."""
        queue_of(self.group, self.rank).in_turn(lambda: self.group.barrier(self.rank, self.timeout_s))

    def call(
        self,
        kind: Collective,
        tensor: torch.Tensor,
        *,
        op: str = "sum",
        root: int = 0,
        algorithm: str = "",
        in_place: bool = False,
        timeout_s: float | None = None,
        fault: str = "",
        compression: str = "",
    ) -> torch.Tensor:
        """Take part in a collective; the operators do it by this.

        Args:
            kind: which.
            tensor: what this rank brings.
            op: by which values are reduced.
            root: from or to which rank it goes, of those that have one.
            algorithm: one of `schedules.ALGORITHMS`; empty for the usual one.
            in_place: whether the tensor is to hold the result, where that has its shape.
            timeout_s: how long others are waited for, and what was begun before; by default as long as the
                communicator says, once that is over.
            fault: why it cannot be done: whoever would raise that here alone would leave the others waiting.
            compression: of which compressed all-reduce this is a part, in words: on all ranks the same.

        Raises:
            CollectiveError: what the ranks have called cannot be done, on all of them.
            CollectiveTimeoutError: some have not called in time; their ranks are its `missing`.
        """
        device = self.group.device
        limit_s, waits_wrong = _waiting_s(timeout_s, self.timeout_s)
        fault = fault or waits_wrong or (_no_place(tensor) if in_place else "")
        called = request(kind, tensor, op, root, algorithm, self.world_size, device, fault, compression)
        brought = torch.empty(0) if called.fault else tensor  # Of which kind it is may be what cannot be done.
        return queue_of(self.group, self.rank).in_turn(
            lambda: self.group.call(self.rank, called, brought, in_place=in_place, timeout_s=limit_s),
            None if timeout_s is None else limit_s,
        )

    @property
    def waits(self) -> bool:
        """Whether a call returns when its result is there: else ranks are called one after another in one thread."""
        return self.world_size == 1 or not isinstance(self.group, SimulatedGroup) or self.group.blocking

    def begin(self, work: Callable[[], torch.Tensor]) -> CollectiveHandle:
        """Have calls of this rank made after those that it has begun before, and return without waiting for them.

        Where ranks are called one after another in one thread, they are made at once. Raises CollectiveError where the
        system has no thread for it; then they are not made.
        """
        return self._begun(work)

    def _begun(self, work: Callable[[], torch.Tensor], *line: object) -> CollectiveHandle:
        return queue_of(self.group, self.rank, *line).start(work) if self.waits else PendingHandle(work)

    def rebuild(self, timeout_s: float | None = None) -> None:
        """Make the group anew with all of its ranks, after one was too late; all of them have to call it.

        What is made for this communicator stays of use. A collective that was broken off has come to its end on some
        ranks and not on others: `broadcast_state` makes them equal again.

        Args:
            timeout_s: how long others are waited for; by default twice as long as the communicator says, as they may
                still be in the collective that this rank has given up.

        Raises:
            CollectiveTimeoutError: ranks did not come in time, or have ended; they are its `missing`.
            CollectiveError: others have gone on without this one, or the back-end cannot do it.
        """
        queue_of(self.group, self.rank).in_turn(lambda: self._regroup(everyone=True, timeout_s=timeout_s))

    def shrink(self, timeout_s: float | None = None) -> None:
        """Make the group anew without those that are lost; all others have to call it.

        Ranks are numbered from 0 again, in the order of before, and `original_ranks` has their first numbers. Who does
        not call in time is left behind. So that two parts that do not reach each other never both go on, a part needs
        more than half of the ranks that are not known to have ended, or half and the lowest of them.

        Args:
            timeout_s: how long those that answer are waited for; by default as by `rebuild`.

        Raises:
            CollectiveTimeoutError: too few are left, or the rank that decides did not come in time.
            CollectiveError: others have gone on without this one, or the back-end cannot do it.
        """
        queue_of(self.group, self.rank).in_turn(lambda: self._regroup(everyone=False, timeout_s=timeout_s))

    def _regroup(self, *, everyone: bool, timeout_s: float | None) -> None:
        limit_s, fault = _waiting_s(timeout_s, 2 * self.timeout_s)
        if fault:
            raise CollectiveError(fault)
        self.group, members = self.group.regroup(self.rank, everyone=everyone, timeout_s=limit_s)
        self.rank, self.world_size = list(members).index(self.rank), len(members)
        self.original_ranks = tuple(self.original_ranks[old] for old in members)

    def _check(self, peer: int, tag: int, *, in_threads: bool = False) -> None:
        """Raise CollectiveError before anything is sent: what only one rank gets wrong would be felt by others."""
        _rank(peer, self.world_size)
        if not 0 <= _number(tag) < MOST_TAGS:
            raise CollectiveError(f"a tag is a number from 0 to {MOST_TAGS - 1}, and not {tag!r}")
        if in_threads and not self.group.takes_threads:
            raise CollectiveError(
                "this MPI takes calls of one thread at a time: use send and recv, or let mpi4py.rc.thread_level be "
                "'multiple' before MPI is imported"
            )


def create_ring_topology(
    world_size: int,
    *,
    threads: bool = False,
    hosts: Sequence[Sequence[int]] | None = None,
    network: KnownLinks | None = None,
) -> list[DistributedCommunicator]:
    """Return the ranks of a group in this process, each with a neighbour on either side.

    Args:
        world_size: how many.
        threads: whether each is used in a thread of its own; by default one is called after another in one thread.
        hosts: the ranks of each host, for the hierarchical all-reduce; by default all are on one.
        network: α and β of the links, by which an all-reduce goes by another algorithm where none is named, and
            `network_s` tells what their collectives would take there.

    Raises:
        CollectiveError: below 1, or the hosts do not have each rank once.
    """
    world_size = _world_size(world_size)
    if hosts is not None and sorted(rank for members in hosts for rank in members) != list(range(world_size)):
        raise CollectiveError(f"hosts have to name each rank from 0 to {world_size - 1} once")
    group = SimulatedGroup(world_size, blocking=threads, hosts=hosts, network=network)
    return [DistributedCommunicator(rank, world_size, group) for rank in range(world_size)]


def _number(value: object) -> int:
    """Return a whole number; -1 of what is none."""
    return operator.index(value) if hasattr(type(value), "__index__") else -1  # type: ignore[arg-type]


def _check_message(data: object) -> None:
    if not isinstance(data, torch.Tensor):
        raise CollectiveError(f"a message is a tensor, and this is a {type(data).__name__}")


def _world_size(value: object) -> int:
    number = _number(value)
    if number < 1:
        raise CollectiveError(f"world_size is {value!r}, and has to be a number, 1 at least")
    return number


def _rank(value: object, world_size: int) -> int:
    number = _number(value)
    if not 0 <= number < world_size:
        raise CollectiveError(f"there is no rank {value!r}: ranks are 0 to {world_size - 1}")
    return number


def _waiting_s(value: object, usual_s: float) -> tuple[float, str]:
    """Return how long others are waited for; and where that is no time, why, for all ranks to be told."""
    if value is None:
        return usual_s, ""
    if isinstance(value, (int, float)) and not math.isnan(value) and value >= 0:
        return min(float(value), _FOR_EVER_S), ""
    return usual_s, f"a time-out is a number of seconds, and not {value!r}"


def _no_place(tensor: object) -> str:
    """Return why a tensor cannot hold a result."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return ""  # Which is a reason by itself.
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape)):
        return "in place there is no room in an expanded tensor, whose elements share memory: take its clone()"
    return ""


def _why_alone() -> str:
    """Return what a rank of several processes may have forgotten, whose group is of this process alone."""
    if dist.is_available() and dist.is_initialized():
        return f"; torch's process group has rank {dist.get_rank()} of {dist.get_world_size()} here"
    ranks = os.environ.get("WORLD_SIZE", "")
    if ranks.isdigit() and int(ranks) > 1:
        return f"; this process is one of WORLD_SIZE={ranks}: call torch.distributed.init_process_group first"
    return ""


_open: dict[int, list[tuple[SimulatedGroup, dict[int, weakref.ref[DistributedCommunicator]]]]] = {}
"""World size → groups that lack ranks, with those that they have."""
_opening = threading.Lock()


def _torch_group(rank: int, world_size: int) -> MessageGroup | None:
    if not dist.is_available() or not dist.is_initialized():
        return None
    is_this = (dist.get_rank(), dist.get_world_size()) == (rank, world_size)
    if not is_this:
        return None
    return group_over(None)


def group_over(process_group: Any) -> MessageGroup:
    """Return what carries the ranks of a process group of torch's; all of them have to call it.

    Over torch's own MPI they go by mpi4py: of one MPI in a process both have the same ranks.

    Args:
        process_group: by `None` that of all ranks.

    Raises:
        CollectiveError: it has no gloo or MPI for the CPU, nor NCCL for GPUs that there are; or there is no mpi4py.
    """
    if backend_of(process_group, "cpu") == "mpi":
        from .mpi_group import over_ranks  # Few have an MPI.

        made = over_ranks(dist.get_process_group_ranks(process_group) if process_group is not None else None)
        place = (dist.get_rank(process_group), dist.get_world_size(process_group))
        if (made.rank, made.world_size) != place:
            raise CollectiveError(
                f"torch has this process as rank {place[0]} of {place[1]}, and mpi4py as {made.rank} of "
                f"{made.world_size}: let mpi4py find the MPI that torch was built with (MPI4PY_LIBMPI)"
            )
        return made
    has_nccl = torch.cuda.is_available() and backend_of(process_group, "cuda") == "nccl"
    return NcclGroup(process_group) if has_nccl else TorchGroup(process_group)


def mpi_communicator(
    hosts: Sequence[Sequence[int]] | None = None, *, timeout_s: float = TIMEOUT_S
) -> DistributedCommunicator:
    """Return this process's communicator over MPI, as started by `mpirun`; all ranks have to call it.

    Args:
        hosts: the ranks of each host, for the hierarchical all-reduce.
        timeout_s: how long other ranks are waited for.

    Raises:
        CollectiveError: mpi4py or an MPI is not installed; it says what to install.
    """
    from .mpi_group import MpiGroup

    group = MpiGroup(hosts=hosts)
    return DistributedCommunicator(group.rank, group.world_size, group, timeout_s=timeout_s)


def _meeting_point(comm: DistributedCommunicator) -> SimulatedGroup:
    """Return the oldest group of this size that lacks the rank, or a new one; of none of which a rank has gone."""
    rank, world_size = comm.rank, comm.world_size
    with _opening:
        groups = _open[world_size] = [
            found for found in _open.get(world_size, ()) if all(other() is not None for other in found[1].values())
        ]
        for place, (group, members) in enumerate(groups):
            if rank not in members:
                members[rank] = weakref.ref(comm)
                if len(members) == world_size:
                    del groups[place]
                return group
        made = SimulatedGroup(world_size, hint=_why_alone())
        if world_size > 1:
            groups.append((made, {rank: weakref.ref(comm)}))
        return made
