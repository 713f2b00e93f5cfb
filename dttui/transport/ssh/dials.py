"""Connects in flight, only so many at a time: one that has no answer yet gives its place to another."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from dttui.transport.deadline import Deadline


class Closable(Protocol):
    """What can be dialled."""

    def close(self) -> None:
        """Let go of it."""


C = TypeVar("C", bound=Closable)

PATIENCE_S = 1.5
"""How long a dial may take before it gives its place to one that has not had its turn; TCP tries again after 1 s."""

AGAIN_EVERY = 4
"""While others wait, one of so many places, and of so many that become free, is for who has had a turn before."""


class Dials:
    """Connects in flight, so many at a time and never more.

    One without an answer gives its place to who has not had a turn yet, and tries again in a later one, which is twice
    as long: a host that answers late is reached too, however many new ones there are all the time.
    """

    def __init__(self, places: int, patience_s: float = PATIENCE_S) -> None:
        self._free = places
        self._most_again = max(1, places // AGAIN_EVERY)
        self._held_again = 0
        self._patience_s = patience_s
        self._new: deque[asyncio.Future[None]] = deque()
        self._again: deque[asyncio.Future[None]] = deque()
        self._given = 0

    async def run(self, dial: Callable[[], Coroutine[Any, Any, C]], deadline: Deadline) -> C:
        """Dial until there is an answer; return or raise that. The deadline stands still before the first time only."""
        with deadline.paused():
            await self._wait_in(self._new)
        queue, has_place, patience_s = self._new, True, self._patience_s
        try:
            while True:
                attempt = asyncio.ensure_future(dial())
                try:
                    while not attempt.done():
                        await asyncio.wait({attempt}, timeout=patience_s)
                        if self._new and not attempt.done():
                            break
                    else:
                        return attempt.result()
                except asyncio.CancelledError:
                    await _abandon(attempt)
                    raise
                await _abandon(attempt)
                has_place = False
                self._release(queue)
                queue = self._again
                await self._wait_in(queue)
                has_place, patience_s = True, patience_s * 2
        finally:
            if has_place:
                self._release(queue)

    async def _wait_in(self, queue: deque[asyncio.Future[None]]) -> None:
        if self._free:
            self._free -= 1
            self._held_again += queue is self._again
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # It was given a place in the moment it was given up.
                self._release(queue)
            raise

    def _release(self, came_from: deque[asyncio.Future[None]]) -> None:
        self._held_again -= came_from is self._again
        self._given += 1
        is_for_new = self._given % AGAIN_EVERY != 0 or self._held_again >= self._most_again
        for queue in (self._new, self._again) if is_for_new else (self._again, self._new):
            while queue:
                turn = queue.popleft()
                if not turn.done():  # Else who waited was given up.
                    turn.set_result(None)
                    self._held_again += queue is self._again
                    return
        self._free += 1


async def _abandon(attempt: asyncio.Future[C]) -> None:
    """End what is not awaited any more, and close what it has opened all the same."""
    attempt.cancel()
    outcome = (await asyncio.gather(attempt, return_exceptions=True))[0]
    if not isinstance(outcome, BaseException):
        outcome.close()
