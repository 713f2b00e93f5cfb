"""Between a connection being made and the person who can answer for it: one question at a time, off the clock."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
from collections.abc import Coroutine
from typing import Any, TypeVar

from dttui.transport.base import Prompt, Prompter
from dttui.transport.deadline import Deadline

T = TypeVar("T")


class Questions:
    """Asks on behalf of one connect. Coroutines run on the event loop; threads that log in come by `from_thread`."""

    def __init__(self, prompter: Prompter, deadline: Deadline, turn: asyncio.Lock) -> None:
        """`turn` is shared by all connects of a transport: two dialogs at once would be one too many."""
        self.deadline = deadline
        self.turn = turn
        self._prompter = prompter
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        """Of whoever connects: threads that log in know neither his language nor his variables."""
        self._from_threads: set[concurrent.futures.Future[Any]] = set()
        self._abandoned = False

    async def ask(self, prompt: Prompt) -> str | None:
        """Return the person's answer, `None` when nobody is there. The deadline stands still meanwhile."""
        with self.deadline.paused():
            async with self.turn:
                return await self._prompter.ask(prompt)

    async def ask_in_turn(self, prompt: Prompt) -> str | None:
        """The same for a caller that holds `turn` and has paused the deadline."""
        return await self._prompter.ask(prompt)

    def from_thread(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop for a thread that waits for it.

        Raises:
            concurrent.futures.CancelledError: The connect was given up meanwhile.
        """
        future = self._context.copy().run(asyncio.run_coroutine_threadsafe, work, self._loop)
        self._from_threads.add(future)
        if self._abandoned:
            future.cancel()
        try:
            return future.result()
        finally:
            self._from_threads.discard(future)

    def abandon(self) -> None:
        """Release every thread that still waits for an answer."""
        self._abandoned = True
        for future in list(self._from_threads):
            future.cancel()
