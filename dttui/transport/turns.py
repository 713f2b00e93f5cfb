"""Whose turn it is where many want the same at once. What never answers holds up nobody for longer than a moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from dttui.transport.deadline import Deadline


class Turns:
    """So many places, first come, first served; who takes longer than a while goes on without one.

    For what normally takes a moment, and where it does not, only waits.
    """

    def __init__(self, places: int, hold_s: float) -> None:
        self._places = asyncio.Semaphore(places)
        self._hold_s = hold_s

    @contextlib.asynccontextmanager
    async def turn(self, deadline: Deadline | None = None) -> AsyncIterator[Callable[[], None]]:
        """Wait for a place, while the deadline stands still; what is yielded keeps it to the end of the block."""
        with deadline.paused() if deadline is not None else contextlib.nullcontext():
            await self._places.acquire()
        is_held = True

        def release() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._places.release()

        timer = asyncio.get_running_loop().call_later(self._hold_s, release)
        try:
            yield timer.cancel
        finally:
            timer.cancel()
            release()
