"""Collectives by messages between processes, whatever carries these: what gloo, MPI and NCCL have in common.

What is sent are bytes, point to point, by the schedules; so any type goes, and any algorithm. What is small goes along
with what ranks tell each other that they call (as an eager message does, in the words of MPI), and every rank makes its
result of that. Where a collective does not come to its end the ranks ask each other who is not there, and the group is
of no use any more.
"""

from __future__ import annotations

import ctypes
import functools
import json
import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .agreement import SIZES_BYTES, Knowledge, Told, length_of, room_for, steps_of
from .buffers import BufferPool
from .choosing import KnownLinks
from .errors import CollectiveError, CollectiveTimeoutError, MismatchError, named
from .pipeline import Pipeline
from .rank_status import Door, RankStanding, judge
from .requests import (
    BARRIER,
    OPS,
    Request,
    VectorLayout,
    agree,
    bringing,
    bytes_of,
    holds,
    result_of,
    schedule,
    vector_from_all,
    vector_of,
)
from .schedules import Collective

if TYPE_CHECKING:
    from .backend import Backend
    from .schedules import Schedule

MOST_UNSENT = 256
"""Messages, two for each `send`, that may wait to be received."""
SEND_S = 300.0
EAGER_BYTES = 1 << 17
"""Of what all ranks bring, together: so much goes along with what they call, unless an algorithm is named."""
_HEADER_BYTES = 512
"""Of what ranks call, so that all of them find out whether that goes together; longer reasons are cut."""
_FAULT_BYTES = 200
_CALLS, _MESSAGES, _SHAPES, _DOORS = 1 << 20, 1 << 21, 1 << 22, 1 << 23
"""Tags of ours: what ranks call, what collectives send, what messages of the script's are like, where ranks answer."""


class _Agreement(NamedTuple):
    """What ranks call, and that goes together."""

    request: Request
    """Of this rank."""
    layout: VectorLayout
    is_eager: bool
    """Whether all values have come along with it."""


class MessageGroup(ABC):
    """Ranks that send each other messages: of collectives, of the script's, and of what ranks call, on the CPU.

    Args:
        name: of the back-end.
        rank: of this process.
        world_size: how many there are.
        standing: what this rank tells the others of itself.
        hosts: the ranks of each host, for algorithms that ask; by default all are on one.
        device: where a collective's messages have to lie; what is elsewhere is copied there and back.
    """

    remedy = "`rebuild` or `shrink` it"
    """What to do once it has lost a rank."""

    def __init__(
        self,
        name: str,
        rank: int,
        world_size: int,
        standing: RankStanding,
        hosts: Sequence[Sequence[int]] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.name = name
        self.rank = rank
        self.world_size = world_size
        self.standing = standing
        self.hosts = hosts
        self.network: KnownLinks | None = None
        self.device = torch.device(device)
        self.takes_threads = True
        self.pool = BufferPool()
        """Of what carries it alone: once it has lost a rank, messages may still arrive in memory that was lent."""
        self._steps = list(steps_of(rank, world_size))
        self._rooms: list[torch.Tensor] = []
        """Where the others' messages of what they call arrive, one for each of its steps."""
        self._to_itself: defaultdict[int, SimpleQueue[torch.Tensor]] = defaultdict(SimpleQueue)
        """Tag → what this rank has sent itself: no connection leads there."""
        self._unsent: deque[tuple[Any, torch.Tensor, int]] = deque()
        """What `send` has not waited for, with the memory that it is sent from and to whom."""

    @abstractmethod
    def _post_send(self, data: torch.Tensor, peer: int, tag: int) -> Any:
        """Begin to send bytes. Raises CollectiveTimeoutError where the peer cannot be reached."""

    @abstractmethod
    def _post_receive(self, data: torch.Tensor, peer: int, tag: int) -> Any:
        """Begin to receive bytes into memory. Raises as `_post_send`."""

    @abstractmethod
    def _wait(self, work: Any, peer: int, deadline: float) -> None:
        """Wait until what was begun is done; `deadline` is by `time.monotonic`. Raises CollectiveTimeoutError."""

    def _give_up(self, missing: Sequence[int]) -> None:  # noqa: B027  not all can
        """Have those that wait for this rank wait no more, where that can be done: it has lost others."""

    @abstractmethod
    def regroup(self, rank: int, *, everyone: bool, timeout_s: float) -> tuple[Backend, Sequence[int]]:
        """Return a group in the place of one that is lost, as `Backend.regroup`."""

    def call(
        self, rank: int, request: Request, tensor: torch.Tensor, *, in_place: bool, timeout_s: float
    ) -> torch.Tensor:
        """Take part in a collective; return its result.

        Raises:
            CollectiveError: what the ranks have called cannot be done, on all of them.
            CollectiveTimeoutError: some have not called in time, or were lost in it; the group is of no use any more.
        """
        carried = tensor.detach().resolve_conj().resolve_neg().to(self.device)
        with self._taking_part(request.kind.value, timeout_s) as deadline:
            told = self._tell(request, self._eager_values(request, carried), deadline)
            agreed = _agreed(told.calls, told.sizes, rank)
            layout = agreed.layout
            if agreed.is_eager:
                vector = vector_from_all(told.values, layout, request, OPS[request.op])
            else:
                vector = vector_of(carried, layout, rank, request.root, self.pool.lend, in_place=in_place)
                self._carry_out(
                    schedule(request, layout, rank, self.hosts, self.network), vector, OPS[request.op], deadline
                )
        values = result_of(vector, layout, rank, request).to(tensor.device)
        # A parameter that requires a gradient takes values, too.
        return tensor.detach().copy_(values) if in_place and holds(tensor, values) else values

    def is_eager(self, size_bytes: int) -> bool:
        """Return whether what each rank brings goes along with what it calls, as `Backend.is_eager`."""
        # On a GPU it would be copied to the CPU and back.
        return self.device.type == "cpu" and size_bytes * self.world_size <= EAGER_BYTES

    def _eager_values(self, request: Request, tensor: torch.Tensor) -> bytes:
        """Return what this rank tells the others at once of what it brings; nothing where that is much."""
        if request.algorithm or request.fault or self.rank not in bringing(request, self.world_size):
            return b""
        size = tensor.numel() * tensor.element_size()
        if not size or not self.is_eager(size):
            return b""
        flat = tensor.contiguous()
        return ctypes.string_at(flat.data_ptr(), size)

    def _carry_out(
        self, rounds: Schedule, vector: torch.Tensor, combine: Callable[..., torch.Tensor], deadline: float
    ) -> None:
        """Do what a schedule says to this rank's vector. Raises CollectiveTimeoutError."""

        def begun(how: Callable[[torch.Tensor, int, int], Any], part: torch.Tensor, peer: int) -> Callable[[], None]:
            work = how(part, peer, _MESSAGES)
            return lambda: self._wait(work, peer, deadline)

        Pipeline(
            self.rank,
            vector,
            combine,
            lambda part, peer: begun(self._post_send, part, peer),
            lambda part, peer: begun(self._post_receive, part, peer),
            lend=self.pool.lend,
        ).run(rounds)

    @contextmanager
    def _taking_part(self, what: str, timeout_s: float) -> Iterator[float]:
        """Have a deadline for a collective; where that fails, find out for whom and raise it."""
        standing = self.standing
        deadline = time.monotonic() + timeout_s
        if standing.missing is not None:
            raise CollectiveTimeoutError(
                f"{what} cannot be done: this group has lost {named(standing.missing)}; {self.remedy}",
                standing.missing,
            )
        standing.turn += 1
        standing.is_inside = True
        try:
            yield deadline
        except CollectiveTimeoutError as error:
            is_late = time.monotonic() >= deadline - 0.05
            loss = judge(standing, error.missing, is_late=is_late)
            self._give_up(loss.missing)
            how = f"timed out after {timeout_s:g} s" if is_late else "was broken off"
            told = f"{what} {how}: {named(loss.missing)} {loss.reason}"
            raise CollectiveTimeoutError(told, loss.missing) from error
        finally:
            standing.is_inside = False

    def _introduce(self, deadline: float) -> None:
        """Tell all ranks where this one answers, and look which of them can be reached there."""
        door = self.standing.open()
        told = self._tell_all(_encoded(door.host, str(door.port), door.secret), _DOORS, deadline)
        doors = {}
        for peer, message in told.items():
            host, port, secret = _decoded(message)
            if host:
                doors[peer] = Door(host, int(port), secret)
        self.standing.know(doors, deadline - time.monotonic())

    def send(self, data: torch.Tensor, source: int, target: int, tag: int) -> None:
        """Send a copy, and what it is like; does not wait until it is received, but where much is not.

        Raises CollectiveTimeoutError where the oldest of that is not received in time.
        """
        if target == self.rank:
            self._to_itself[tag].put(data.detach().clone())
            return
        while len(self._unsent) >= MOST_UNSENT:
            work, _memory, peer = self._unsent.popleft()
            self._wait(work, peer, time.monotonic() + SEND_S)
        message = data.detach().to("cpu", copy=True).contiguous()
        self._unsent.extend((work, memory, target) for work, memory in self._post_message(message, target, tag))

    def begin_send(
        self, data: torch.Tensor, source: int, target: int, tag: int, timeout_s: float
    ) -> Callable[[], torch.Tensor]:
        """Begin to send a tensor, as `Backend.begin_send`: a copy where it is not in one piece, or not on the CPU."""
        if target == self.rank:
            self.send(data, source, target, tag)
            return lambda: data
        deadline = time.monotonic() + timeout_s
        begun = self._post_message(data.detach().to("cpu").contiguous(), target, tag)

        def wait() -> torch.Tensor:
            for work, _memory in begun:
                self._wait(work, target, deadline)
            return data

        return wait

    def _post_message(self, message: torch.Tensor, target: int, tag: int) -> list[tuple[Any, torch.Tensor]]:
        """Begin to send what a tensor is like, and its values; return both with their memory."""
        message = message.resolve_conj().resolve_neg()
        told = _encoded(str(message.dtype), *map(str, message.shape))
        begun = [(self._post_send(told, target, _SHAPES + tag), told)]
        if message.numel():
            flat = message.view(-1).view(torch.uint8)
            begun.append((self._post_send(flat, target, tag), flat))
        return begun

    def receive(
        self, source: int, target: int, shape: Sequence[int], dtype: torch.dtype, tag: int, timeout_s: float
    ) -> torch.Tensor:
        """Return what was sent, on the group's device.

        Raises:
            CollectiveTimeoutError: nothing came in time; the group is of no use any more.
            MismatchError: what came is of another shape or type.
        """
        message = self._received(source, tag, timeout_s)
        if (tuple(message.shape), message.dtype) != (tuple(shape), dtype):
            raise MismatchError(
                f"{named([source])} sent {tuple(message.shape)} of {message.dtype}, and {named([target])} expects "
                f"{tuple(shape)} of {dtype}"
            )
        return message.to(self.device)

    def _received(self, source: int, tag: int, timeout_s: float) -> torch.Tensor:
        """Return what was sent, whatever it is. Raises CollectiveTimeoutError."""
        if source == self.rank:
            try:
                return self._to_itself[tag].get(timeout=timeout_s)
            except Empty:
                told = f"recv timed out after {timeout_s:g} s: {named([source])} has sent itself nothing"
                raise CollectiveTimeoutError(told, [source]) from None
        deadline = time.monotonic() + timeout_s
        told_of = torch.zeros(_HEADER_BYTES, dtype=torch.uint8)
        self._wait(self._post_receive(told_of, source, _SHAPES + tag), source, deadline)
        kind, *sizes = _decoded(told_of)
        message = torch.empty(tuple(map(int, sizes)), dtype=getattr(torch, kind.partition(".")[2]))
        if message.numel():
            flat = message.view(-1).view(torch.uint8)
            self._wait(self._post_receive(flat, source, tag), source, deadline)
        return message

    def barrier(self, rank: int, timeout_s: float) -> None:
        """Wait until all ranks are here, and what this one sent is received.

        Raises:
            CollectiveTimeoutError: some did not come in time.
            MismatchError: others have called something else.
        """
        with self._taking_part("barrier", timeout_s) as deadline:
            told = self._tell(Request(Collective.BROADCAST, (), torch.uint8, algorithm=BARRIER), b"", deadline)
            _agreed(told.calls, told.sizes, self.rank)
            while self._unsent:
                work, _memory, peer = self._unsent.popleft()
                self._wait(work, peer, deadline)

    def _tell(self, request: Request, values: bytes, deadline: float) -> Told:
        """Tell all ranks what this one calls, and brings along; return what each does."""
        if not self.standing.is_introduced and self.world_size > 1:
            self._introduce(deadline)
        if not self._rooms:
            each = EAGER_BYTES // self.world_size
            rooms = [room_for(step.ranks, _HEADER_BYTES, each) for step in self._steps]
            self._rooms = [torch.empty(size, dtype=torch.uint8) for size in rooms]
        known, sent = Knowledge(_call_bytes(request), values), []
        # All at once, as gloo's messages leave when they are awaited.
        coming = [self._post_receive(into, step.source, _CALLS) for into, step in zip(self._rooms, self._steps)]
        for step, into, work in zip(self._steps, self._rooms, coming):
            message = torch.frombuffer(known.message(step.ranks), dtype=torch.uint8)
            sent.append((self._post_send(message, step.target, _CALLS), message, step.target))
            self._wait(work, step.source, deadline)
            length = length_of(ctypes.string_at(into.data_ptr(), SIZES_BYTES))
            known.add(ctypes.string_at(into.data_ptr(), length))
        for work, _message, peer in sent:
            self._wait(work, peer, deadline)
        return known.told(self.rank)

    def _tell_all(self, own: torch.Tensor, tag: int, deadline: float) -> dict[int, torch.Tensor]:
        """Send a header to all ranks, and return theirs."""
        told = {peer: torch.zeros_like(own) for peer in range(self.world_size) if peer != self.rank}
        try:
            self._swap(own, told, tag, deadline)
        except CollectiveTimeoutError as error:
            # What came lies in memory, though all that waits may have ended once one has waited too long.
            missing = [peer for peer, into in told.items() if not int(into[0])] or list(error.missing)
            raise CollectiveTimeoutError(str(error), missing) from error
        return told

    def _swap(self, own: torch.Tensor, told: dict[int, torch.Tensor], tag: int, deadline: float) -> None:
        """Send bytes to some ranks, and receive as many from each."""
        works = [(self._post_receive(into, peer, tag), peer) for peer, into in told.items()]
        works += [(self._post_send(own, peer, tag), peer) for peer in told]
        for work, peer in works:
            self._wait(work, peer, deadline)

    def _lost(self, told: str, peer: int) -> CollectiveTimeoutError:
        """Return what is raised where one has not answered: what waits for it is never over."""
        if not self.standing.is_inside:  # Of a collective it is found out who it was.
            self.standing.missing = [peer]
        return CollectiveTimeoutError(told, [peer])


@functools.lru_cache(256)
def _call_bytes(request: Request) -> bytes:
    kind, shape, dtype, op, root, algorithm, fault, compression = request
    return _json(kind.value, str(dtype), op, str(root), algorithm, _cut(fault), compression, *map(str, shape))


def _cut(text: str) -> str:
    return text.encode()[:_FAULT_BYTES].decode(errors="ignore")


@functools.lru_cache(256)
def _request_of(call: bytes) -> Request:
    kind, dtype, op, root, algorithm, fault, compression, *shape = json.loads(call)
    sizes, of_type = tuple(map(int, shape)), getattr(torch, dtype.partition(".")[2])
    return Request(Collective(kind), sizes, of_type, op, int(root), algorithm, fault, compression)


@functools.lru_cache(256)
def _agreed(calls: tuple[bytes, ...], sizes: tuple[int, ...], rank: int) -> _Agreement:
    """Return what ranks call, which a training does again and again. Raises as `agree`.

    Args:
        calls: of each rank.
        sizes: bytes that each has brought with it.
        rank: of whom.
    """
    requests = [_request_of(call) for call in calls]
    layout = agree(requests)
    due = [bytes_of(requests[other]) for other in bringing(requests[rank], len(calls))]
    return _Agreement(requests[rank], layout, due == [sizes[other] for other in bringing(requests[rank], len(calls))])


def _json(*words: str) -> bytes:
    text = json.dumps(words, ensure_ascii=False, separators=(",", ":")).encode()
    if len(text) > _HEADER_BYTES:
        raise CollectiveError("the tensor has too many dimensions to be told of")
    return text


def _encoded(*words: str) -> torch.Tensor:
    """Return words as bytes of the length that all headers have; the first one is never zero."""
    text = _json(*words)
    return torch.frombuffer(bytearray(text.ljust(_HEADER_BYTES)), dtype=torch.uint8)


def _decoded(told: torch.Tensor) -> list[str]:
    words: list[str] = json.loads(bytes(told.tolist()))
    return words
