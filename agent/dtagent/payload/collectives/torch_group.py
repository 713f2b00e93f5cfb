"""Ranks that torch.distributed has brought together, by gloo."""

from __future__ import annotations

import datetime
import functools
import json
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import torch
import torch.distributed as dist

from .buffers import BufferPool
from .errors import CollectiveError, CollectiveTimeoutError, named
from .job_settings import job_settings
from .message_passing import MessageGroup
from .rank_status import Door, RankStanding
from .regrouping import Regrouping

_LONGEST_PAUSE_S = 0.25
"""Between two looks whether all ranks have written where they answer."""
_IN_VAIN = 1 << 24
"""A tag that nobody sends by."""
_lost: list[TorchGroup] = []
"""Groups that others have taken the place of: gloo's threads may still be at work in their memory."""
_standings: weakref.WeakKeyDictionary[Any, RankStanding] = weakref.WeakKeyDictionary()
"""Process group → how this process stands in it: several `TorchGroup` may be of one."""
_books: Counter[str] = Counter()
"""Name of a process group → how many of it there were: after `destroy_process_group` there may be another."""
_pools: weakref.WeakKeyDictionary[Any, BufferPool] = weakref.WeakKeyDictionary()
"""Process group → the memory that is lent to messages over it, whichever `TorchGroup` they are of."""


def backend_of(group: Any, device: str) -> str:
    """Return what a process group of torch's has for tensors of a device: `gloo`, `nccl`; empty for nothing.

    Args:
        group: by `None` that of all ranks.
        device: its kind, `cpu` or `cuda`.
    """
    ask = getattr(dist, "get_backend_config", dist.get_backend)  # Older versions have one for all devices.
    return backend_for(str(ask(group)), device)


def backend_for(config: str, device: str) -> str:
    """Return what a description as `cpu:gloo,cuda:nccl`, or `gloo` for all devices, has for a device."""
    if ":" not in config:
        return config
    return dict(item.split(":", 1) for item in config.split(",")).get(device, "")


def _hosts(group: Any) -> list[list[int]] | None:
    """Return which ranks of a group are on one host each, by what the launch says; `None` where it does not."""
    sizes = job_settings().ranks_per_node
    if not sizes or sum(sizes) != dist.get_world_size():
        return None
    host_of = [host for host, size in enumerate(sizes) for _rank in range(size)]
    try:
        members = dist.get_process_group_ranks(group)
    except (KeyError, ValueError):  # It is none of those that torch keeps a list of.
        return None
    found: dict[int, list[int]] = {}
    for place, rank in enumerate(members):
        found.setdefault(host_of[rank], []).append(place)
    return list(found.values())


def _standing_in(group: Any) -> RankStanding:
    """Return how this process stands in a group, and write in its store where it answers, where torch gives that.

    A message over the group may be the first that is lost, and then nobody would know whom to ask.
    """
    standing = RankStanding(group.rank())
    if not hasattr(group, "get_group_store") or group.size() == 1:  # Torch has it from 2.7 on.
        return standing
    _books[group.group_name] += 1
    prefix = f"dttui/doors/{_books[group.group_name]}"
    with suppress(RuntimeError):  # Then there is the group itself.
        _book(group, prefix).set(str(standing.rank), json.dumps(standing.open()))
        names = {rank: str(rank) for rank in range(group.size()) if rank != standing.rank}
        # A store that is kept after `destroy_process_group` would serve the next group, with keys of this one.
        standing.find = functools.partial(_find_doors, weakref.ref(group), prefix, names)
    return standing


def _book(group: Any, prefix: str) -> Any:
    return dist.PrefixStore(prefix, group.get_group_store())  # type: ignore[attr-defined]  # it is in no `__all__`


def _find_doors(group: Callable[[], Any], prefix: str, names: Mapping[int, str], within_s: float) -> dict[int, Door]:
    """Return where ranks answer that have written so, for all of which it waits so long."""
    found = group()
    if found is None:
        return {}
    with suppress(RuntimeError, ValueError, TypeError):  # The store is lost, or what stands there is nonsense.
        book, all_names = _book(found, prefix), [*names.values()]
        until, pause_s = time.monotonic() + within_s, 0.005
        # It is not waited in the store, of which torch's own threads would have nothing meanwhile.
        while not (is_whole := book.check(all_names)) and time.monotonic() < until:
            time.sleep(min(pause_s, max(0.0, until - time.monotonic())))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        there = [rank for rank, name in names.items() if is_whole or book.check([name])]
        return {rank: Door(*json.loads(book.get(names[rank]))) for rank in there}
    return {}


class TorchGroup(MessageGroup):
    """The ranks of a process group of torch's.

    Args:
        group: by default that of all ranks.
        hosts: the ranks of each host, for algorithms that ask; by default as dttui has started them, else all on one.

    Raises:
        CollectiveError: `torch.distributed.init_process_group` has not been called, or it has no gloo for the CPU.
    """

    def __init__(self, group: Any = None, hosts: Sequence[Sequence[int]] | None = None) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise CollectiveError("there is no process group: call torch.distributed.init_process_group first")
        self._group = cast(Any, group if group is not None else dist.group.WORLD)
        # One of `regroup` is none of those that torch keeps a list of.
        is_own = isinstance(self._group, getattr(dist, "ProcessGroupGloo", ()))
        name = "gloo" if is_own else backend_of(self._group, "cpu")
        if name != "gloo":
            told = name or "nothing"
            raise CollectiveError(
                f"the operators go over gloo, NCCL and MPI, and this process group has {told} for the CPU"
            )
        self.carrier = self._group
        """What its messages go over: of several `TorchGroup` of one process group, the same."""
        rank: int = self._group.rank()
        hosts = hosts if hosts is not None else _hosts(self._group)
        if self._group not in _standings:
            _standings[self._group] = _standing_in(self._group)
        super().__init__(name, rank, self._group.size(), _standings[self._group], hosts)
        self.network = job_settings().network
        self.pool = _pools.setdefault(self._group, self.pool)
        self._regrouping: Regrouping | None = None

    def regroup(self, rank: int, *, everyone: bool, timeout_s: float) -> tuple[TorchGroup, list[int]]:
        """Return a new group over gloo, and the ranks of this one that it has, by their new numbers.

        Raises: as `Regrouping.meet`.
        """
        if self._regrouping is None:
            self._regrouping = Regrouping(self.standing, self.world_size)
        made, standing, members = self._regrouping.meet(everyone=everyone, timeout_s=timeout_s)
        _standings[made] = standing
        left = {old: new for new, old in enumerate(members)}
        hosts = [[left[old] for old in host if old in left] for host in self.hosts] if self.hosts is not None else None
        _lost.append(self)
        return TorchGroup(made, [host for host in hosts if host] if hosts is not None else None), members

    def _introduce(self, deadline: float) -> None:
        """Look in the store where all ranks answer: that goes also where a message over the group would be lost."""
        if self.standing.find is None:
            super()._introduce(deadline)
            return
        doors = self.standing.find(max(0.001, deadline - time.monotonic()))
        missing = sorted(set(range(self.world_size)) - {self.rank, *doors})
        if missing:
            raise CollectiveTimeoutError(f"{named(missing)} did not come", missing)
        self.standing.know({rank: door for rank, door in doors.items() if door.host}, deadline - time.monotonic())

    def _give_up(self, missing: Sequence[int]) -> None:
        """Close the connections to all ranks, who hear at once that this one waits no more.

        Gloo has no call for it, and does it where a message is waited for in vain.
        """
        # The first may have closed its own already: then waiting for it is not in vain, but fails.
        for peer in set(range(self.world_size)) - {self.rank, *missing}:
            with suppress(RuntimeError):  # They are closed, or are now.
                nothing = torch.empty(1, dtype=torch.uint8)
                self._group.recv([nothing], peer, _IN_VAIN).wait(datetime.timedelta(milliseconds=1))

    def _post_send(self, data: torch.Tensor, peer: int, tag: int) -> Any:
        return self._post(self._group.send, data, peer, tag)

    def _post_receive(self, data: torch.Tensor, peer: int, tag: int) -> Any:
        return self._post(self._group.recv, data, peer, tag)

    def _post(self, how: Any, data: torch.Tensor, peer: int, tag: int) -> Any:
        try:
            return how([data], peer, tag)
        except RuntimeError as error:
            raise self._lost(f"{named([peer])} cannot be reached: {error}", peer) from error

    def _wait(self, work: Any, peer: int, deadline: float) -> None:
        try:
            # Gloo ends all that waits in a group once one has waited too long.
            work.wait(datetime.timedelta(seconds=max(0.001, deadline - time.monotonic())))
        except RuntimeError as error:
            raise self._lost(f"{named([peer])} did not answer: {error}", peer) from error
