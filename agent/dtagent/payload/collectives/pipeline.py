"""A schedule carried out by messages that need not be waited for at once: cut into segments, so that links never idle.

What a rank receives it hands on segment by segment, while the rest of the part is still on its way: rounds overlap, and
reducing with sending. A ring's time for a large vector comes so near its 2(n-1)/n·S/B (Patarasuk and Yuan 2009, who
pipeline likewise). It must not know what carries the messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from .buffers import Lend
    from .schedules import Schedule, Transfer

    Wait = Callable[[], None]
    """Returns when a message has gone or come; raises where it does not in time."""
    Post = Callable[[torch.Tensor, int], Wait]
    """Begins to send bytes to a rank, or to receive them from one."""

SEGMENT_BYTES = 2 << 20
"""Of what is sent at a time. Smaller ones cost more messages, larger ones leave more of a part to wait for."""


class _Message(NamedTuple):
    """A segment on its way."""

    begin: int
    """In elements of the vector, as `end`."""
    end: int
    wait: Wait
    scratch: torch.Tensor | None = None
    """Where it arrives, if it is reduced; else it arrives in its place."""

    def meets(self, begin: int, end: int) -> bool:
        """Return whether it shares elements with a stretch."""
        return self.begin < end and begin < self.end


class Pipeline:
    """One rank's part in a collective.

    Args:
        rank: of whom.
        vector: of one dimension, contiguous; it changes.
        combine: how two values become one, with `out`.
        send: begins to send bytes.
        receive: begins to receive bytes.
        segment_bytes: of a segment; alike on all ranks.
        lend: gives memory in which what is reduced arrives; by default it is new.
    """

    def __init__(
        self,
        rank: int,
        vector: torch.Tensor,
        combine: Callable[..., torch.Tensor],
        send: Post,
        receive: Post,
        segment_bytes: int = SEGMENT_BYTES,
        lend: Lend | None = None,
    ) -> None:
        self._rank = rank
        self._vector = vector
        self._combine = combine
        self._send = send
        self._receive = receive
        self._lend = lend or (lambda count, dtype, device: torch.empty(count, dtype=dtype, device=device))
        self._segment = max(1, segment_bytes // vector.element_size())
        self._coming: deque[_Message] = deque()
        """In the order in which they were asked for."""
        self._going: deque[_Message] = deque()
        self._spare: dict[int, list[torch.Tensor]] = {}
        """Elements → memory in which nothing waits any more."""

    def run(self, schedule: Schedule) -> None:
        """Carry a schedule out; return when all has come and gone. Raises what waiting for a message raises."""
        for transfers in schedule:
            begun: list[_Message] = []
            for item in transfers:
                if item.target == self._rank:
                    begun += [self._begin_receiving(item, *piece) for piece in self._pieces(item)]
            for item in transfers:
                if item.source == self._rank:
                    for piece in self._pieces(item):
                        self._begin_sending(item, *piece)
            self._coming.extend(begun)  # Now: a round sends what was there before it.
        while self._coming:
            self._take_in(self._coming.popleft())
        while self._going:
            self._going.popleft().wait()

    def _pieces(self, item: Transfer) -> Iterator[tuple[int, int]]:
        for begin in range(item.begin, item.end, self._segment):
            yield begin, min(begin + self._segment, item.end)

    def _begin_receiving(self, item: Transfer, begin: int, end: int) -> _Message:
        if item.reduces:
            spare = self._spare.get(end - begin)
            scratch = spare.pop() if spare else self._lend(end - begin, self._vector.dtype, self._vector.device)
            return _Message(begin, end, self._receive(scratch.view(torch.uint8), item.source), scratch)
        self._settle(begin, end)
        self._let_go(begin, end)
        return _Message(begin, end, self._receive(self._vector[begin:end].view(torch.uint8), item.source))

    def _begin_sending(self, item: Transfer, begin: int, end: int) -> None:
        self._settle(begin, end)
        wait = self._send(self._vector[begin:end].view(torch.uint8), item.target)
        self._going.append(_Message(begin, end, wait))

    def _settle(self, begin: int, end: int) -> None:
        """Take in all that earlier rounds bring of a stretch, and what was asked for before that."""
        while any(item.meets(begin, end) for item in self._coming):
            self._take_in(self._coming.popleft())

    def _take_in(self, message: _Message) -> None:
        message.wait()
        if message.scratch is None:
            return
        self._let_go(message.begin, message.end)
        own = self._vector[message.begin : message.end]
        self._combine(own, message.scratch, out=own)
        self._spare.setdefault(len(message.scratch), []).append(message.scratch)

    def _let_go(self, begin: int, end: int) -> None:
        """Wait until nothing of a stretch is still to be sent: it is about to change."""
        while any(item.meets(begin, end) for item in self._going):
            self._going.popleft().wait()
