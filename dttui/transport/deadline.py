"""One time limit around a whole operation. The time that a person takes to answer does not count."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class Deadline:
    """Cancels the operation it runs when the time is up. One operation a deadline."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.stage = ""
        """What the operation is busy with, in words, for the error when the time is up."""
        self._left_s = seconds
        self._resumed_at = 0.0
        self._pauses = 0
        self._expired = False
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None

    async def run(self, operation: Coroutine[Any, Any, T]) -> T:
        """Return the operation's result.

        Raises:
            TimeoutError: The time was up; the operation has been cancelled and has cleaned up after itself.
        """
        self._task = task = asyncio.ensure_future(operation)
        self._resume()
        try:
            # Not awaited itself: its cancellation could not be told from one of whoever awaits this.
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise
        finally:
            self._stop()
            self._task = None
        if task.cancelled() and self._expired:
            raise TimeoutError(self.stage)
        return task.result()

    @property
    def left_s(self) -> float:
        """Seconds of the time that are left; the operation may be paused."""
        running_s = asyncio.get_running_loop().time() - self._resumed_at if self._timer is not None else 0.0
        return max(0.0, self._left_s - running_s)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The clock stands still inside. May be nested, and used by several coroutines of the operation at once."""
        self._pauses += 1
        if self._pauses == 1:
            self._stop()
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0 and self._task is not None:
                self._resume()

    def _resume(self) -> None:
        loop = asyncio.get_running_loop()
        self._resumed_at = loop.time()
        self._timer = loop.call_later(max(self._left_s, 0.0), self._expire)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left_s -= asyncio.get_running_loop().time() - self._resumed_at

    def _expire(self) -> None:
        self._timer = None
        self._expired = True
        if self._task is not None:
            self._task.cancel()


async def within(operation: Awaitable[T], seconds: float | None) -> T:
    """Return what an operation gives in time, and be cancelled when told so.

    Not `asyncio.wait_for`: before Python 3.12 that swallows a cancellation which comes together with the result.

    Raises:
        asyncio.TimeoutError: The time was up; the operation has been cancelled and has cleaned up after itself.
    """
    task = asyncio.ensure_future(operation)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
        is_late = not task.done()
        if is_late:
            await asyncio.gather(task, return_exceptions=True)
        elif not task.cancelled():
            task.exception()  # Seen, also where nobody is left to hear of it.
    if is_late and task.cancelled():
        raise asyncio.TimeoutError
    return task.result()
