"""Ranks that are in one process: the simulated back-end, for tests and for learning.

They are called one after another in one thread, and a result is filled in when the last rank has called; or each in a
thread of its own, and a call returns when its result is there.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from .choosing import KnownLinks
from .clock import simulate
from .errors import CollectiveError, CollectiveTimeoutError, MismatchError, PendingError, named
from .pending import PendingTensor
from .requests import OPS, Request, VectorLayout, agree, holds, result_of, schedule, vector_of

if TYPE_CHECKING:
    from .schedules import Schedule


class _Brought(NamedTuple):
    """What a rank has called, and where its result goes."""

    request: Request
    tensor: torch.Tensor
    result: PendingTensor
    in_place: bool


class SimulatedGroup:
    """Ranks that meet in memory.

    Args:
        world_size: how many.
        blocking: whether each has a thread of its own, and waits for the others.
        hosts: the ranks of each host, for algorithms that ask; by default all are on one.
        network: by which an algorithm is chosen where none is named, and its collectives are timed by a virtual clock.
        hint: what whoever reads a result too early may have forgotten.
    """

    name = "simulated"
    device: torch.device | None = None
    takes_threads = True

    def __init__(
        self,
        world_size: int,
        *,
        blocking: bool = False,
        hosts: Sequence[Sequence[int]] | None = None,
        network: KnownLinks | None = None,
        hint: str = "",
    ) -> None:
        self.world_size = world_size
        self.hint = hint
        self.blocking = blocking
        self.hosts = hosts
        self.network = network
        self.network_s = 0.0
        """What its collectives would have taken on that network, one after another."""
        self._changed = threading.Condition()
        self._calls: dict[int, dict[int, _Brought]] = {}
        self._barriers: dict[int, set[int]] = defaultdict(set)
        self._turns: dict[tuple[str, int], int] = defaultdict(int)
        self._given_up: dict[tuple[str, int], int] = {}
        """Collective → the rank that has waited too long for it."""
        self._mail: dict[tuple[int, int, int], deque[torch.Tensor]] = defaultdict(deque)
        self._awaited: dict[tuple[int, int, int], deque[PendingTensor]] = defaultdict(deque)

    def is_eager(self, size_bytes: int) -> bool:
        """Return that nothing is: it would show no algorithm."""
        return False

    def call(
        self, rank: int, request: Request, tensor: torch.Tensor, *, in_place: bool, timeout_s: float
    ) -> torch.Tensor:
        """Take part in a collective; return its result, or where others have still to call, what will be it.

        Raises:
            CollectiveError: what the ranks have called does not go together; those that called before read the same.
            CollectiveTimeoutError: each rank has a thread, and some have not called in time.
        """
        with self._changed:
            turn = self._turn("call", rank)
            self._check_given_up("call", turn, request.kind.value)
            brought = self._calls.setdefault(turn, {})
            result = PendingTensor(lambda: self._unanswered(request.kind.value, brought), tensor)
            is_last = len(brought) == self.world_size - 1
            if not (in_place or self.blocking or is_last):
                tensor = tensor.detach().clone()  # Its owner goes on, and may change it before the others call.
            brought[rank] = _Brought(request, tensor, result, in_place)
            if is_last:
                self._run([brought[index] for index in range(self.world_size)])
                del self._calls[turn]
                brought.clear()  # Each result knows of it, for who reads it too early.
                self._changed.notify_all()
            elif not self.blocking:
                return result
            elif not self._changed.wait_for(lambda: result.known is not None or result.has_failed, timeout_s):
                late = self._late(request.kind.value, tuple(brought), timeout_s)
                self._given_up["call", turn] = rank
                for item in brought.values():
                    item.result.fail(lambda: late)
                self._changed.notify_all()
                raise late
        return result.read()

    def send(self, data: torch.Tensor, source: int, target: int, tag: int) -> None:
        """Send a copy; returns at once."""
        with self._changed:
            key = (source, target, tag)
            if self._awaited[key]:
                _hand_over(data.detach().clone(), self._awaited[key].popleft(), key)
            else:
                self._mail[key].append(data.detach().clone())
            self._changed.notify_all()

    def begin_send(
        self, data: torch.Tensor, source: int, target: int, tag: int, timeout_s: float
    ) -> Callable[[], torch.Tensor]:
        """Send a copy; it has gone at once."""
        self.send(data, source, target, tag)
        return lambda: data

    def receive(
        self, source: int, target: int, shape: Sequence[int], dtype: torch.dtype, tag: int, timeout_s: float
    ) -> torch.Tensor:
        """Return what was sent, in the order in which it was; in one thread, what will be it.

        Raises:
            CollectiveTimeoutError: each rank has a thread, and nothing came in time.
            MismatchError: what came is of another shape or type.
        """
        key = (source, target, tag)
        with self._changed:
            why = f"{named([source])} has not sent to {named([target])} yet"
            result = PendingTensor(lambda: PendingError(why), torch.empty(tuple(shape), dtype=dtype))
            result.wanted = (tuple(shape), dtype)
            if self._mail[key]:
                _hand_over(self._mail[key].popleft(), result, key)
            else:
                self._awaited[key].append(result)
                if not self.blocking:
                    return result
                if not self._changed.wait_for(lambda: result.known is not None or result.has_failed, timeout_s):
                    self._awaited[key] = deque(item for item in self._awaited[key] if item is not result)
                    raise CollectiveTimeoutError(
                        f"recv timed out after {timeout_s:g} s: {named([source])} has not sent", [source]
                    )
        return result.read()

    def barrier(self, rank: int, timeout_s: float) -> None:
        """Wait until all ranks are here; in one thread, note that this one is.

        Raises CollectiveTimeoutError where each rank has a thread and some did not come in time.
        """
        with self._changed:
            turn = self._turn("barrier", rank)
            self._check_given_up("barrier", turn, "barrier")
            here = self._barriers[turn]
            here.add(rank)
            if len(here) == self.world_size:
                del self._barriers[turn]
            self._changed.notify_all()
            if not self.blocking:
                return

            def is_over() -> bool:
                return len(here) == self.world_size or ("barrier", turn) in self._given_up

            if not self._changed.wait_for(is_over, timeout_s) or len(here) < self.world_size:
                self._given_up.setdefault(("barrier", turn), rank)
                self._changed.notify_all()
                raise self._late("barrier", here, timeout_s)

    def regroup(self, rank: int, *, everyone: bool, timeout_s: float) -> tuple[SimulatedGroup, list[int]]:
        """Raise CollectiveError: ranks of one process are lost together or not at all."""
        raise CollectiveError("ranks of one process are not lost: make another group by create_ring_topology")

    def _run(self, brought: Sequence[_Brought]) -> None:
        """Do a collective for all ranks at once; what is wrong, each reads from its result."""
        requests = [item.request for item in brought]
        try:
            self._exchange(brought, agree(requests))
        except CollectiveError as error:
            kind, told = type(error), str(error)
            for item in brought:
                item.result.fail(lambda: kind(told))
        except Exception as error:  # noqa: BLE001  whatever it is, no rank may go on waiting
            told = f"{requests[0].kind.value} failed: {type(error).__name__}: {error}"
            for item in brought:
                item.result.fail(lambda: CollectiveError(told))

    def _exchange(self, brought: Sequence[_Brought], layout: VectorLayout) -> None:
        """Let each rank have its result."""
        requests = [item.request for item in brought]
        vectors = [
            vector_of(item.tensor, layout, rank, item.request.root, in_place=item.in_place)
            for rank, item in enumerate(brought)
        ]

        def schedules() -> list[Schedule]:
            return [schedule(item, layout, rank, self.hosts, self.network) for rank, item in enumerate(requests)]

        perform(schedules(), vectors, requests[0].op)
        if self.network is not None:
            size = vectors[0].element_size()
            self.network_s += simulate(schedules(), size, self.network.link_of(self.hosts)).seconds
        for rank, item in enumerate(brought):
            values = result_of(vectors[rank], layout, rank, item.request)
            own = item.tensor.detach()
            item.result.fill(own.copy_(values) if item.in_place and holds(item.tensor, values) else values)

    def _turn(self, what: str, rank: int) -> int:
        """Return the number of a rank's call, from 0: those of one number are of one collective."""
        self._turns[what, rank] += 1
        return self._turns[what, rank] - 1

    def _unanswered(self, what: str, here: Iterable[int]) -> PendingError:
        missing = [rank for rank in range(self.world_size) if rank not in here]
        return PendingError(f"the result of {what} is read before {named(missing)} called it{self.hint}")

    def _check_given_up(self, line: str, turn: int, what: str) -> None:
        """Raise CollectiveTimeoutError where others wait no more for this rank, which has to hear of it."""
        rank = self._given_up.get((line, turn))
        if rank is not None:
            raise CollectiveTimeoutError(f"{what} was broken off: {named([rank])} gave this rank up", [rank])

    def _late(self, what: str, here: Iterable[int], timeout_s: float) -> CollectiveTimeoutError:
        missing = [rank for rank in range(self.world_size) if rank not in here]
        return CollectiveTimeoutError(f"{what} timed out after {timeout_s:g} s: {named(missing)} did not call", missing)


def _hand_over(data: torch.Tensor, result: PendingTensor, key: tuple[int, int, int]) -> None:
    shape, dtype = result.wanted
    if (tuple(data.shape), data.dtype) == (shape, dtype):
        result.fill(data)
        return
    source, target, _tag = key
    told = (
        f"{named([source])} sent {tuple(data.shape)} of {data.dtype}, and {named([target])} expects {shape} of {dtype}"
    )
    result.fail(lambda: MismatchError(told))


def perform(schedules: Iterable[Schedule], vectors: Sequence[torch.Tensor], op: str) -> None:
    """Do what the schedules of all ranks say, round by round, to their vectors."""
    combine: Callable[..., torch.Tensor] = OPS[op]
    for rounds in zip(*schedules):
        sent = [item for rank, transfers in enumerate(rounds) for item in transfers if item.source == rank]
        # All of a round at once: what is sent is what was there before anything came.
        messages: list[torch.Tensor] = [vectors[item.source][item.begin : item.end].clone() for item in sent]
        for item, message in zip(sent, messages):
            own = vectors[item.target][item.begin : item.end]
            if item.reduces:
                combine(own, message, out=own)
            else:
                own.copy_(message)
