"""Saying for whom one waits while hosts are asked: who has not answered yet, and until when at the latest."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection

from dttui.transport.base import Prompt, Prompter
from dttui.transport.deadline import Deadline

TICK_S = 0.25
OnWait = Callable[[Collection[str], float], None]
"""Told again and again who is waited for, and until which Unix time at the latest; how often it says so is its own."""


class Asking:
    """Has a person asked, and knows whether a question is open; a deadline's clock stands still meanwhile."""

    def __init__(self, prompter: Prompter, deadline: Deadline | None = None) -> None:
        self._prompter = prompter
        self._deadline = deadline
        self._open = 0
        self.took_s = 0.0
        """How long a person was asked so far, all questions together."""

    @property
    def is_open(self) -> bool:
        """Whether a person is being asked now: nothing is to be written meanwhile, and clocks of hosts stand still."""
        return self._open > 0

    async def ask(self, prompt: Prompt) -> str | None:
        """Return the answer."""
        self._open += 1
        began = time.monotonic()
        try:
            with self._deadline.paused() if self._deadline is not None else contextlib.nullcontext():
                return await self._prompter.ask(prompt)
        finally:
            self._open -= 1
            self.took_s += time.monotonic() - began


@contextlib.asynccontextmanager
async def saying(
    on_wait: OnWait | None, asking: Asking, look: Callable[[], tuple[Collection[str], float]]
) -> AsyncIterator[None]:
    """Tell inside, but while a person is asked, whom a look finds, and for how many seconds more."""
    if on_wait is None:
        yield
        return
    task = asyncio.create_task(_say(on_wait, asking, look))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _say(on_wait: OnWait, asking: Asking, look: Callable[[], tuple[Collection[str], float]]) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        if not asking.is_open:
            names, left_s = look()
            on_wait(names, time.time() + left_s)
