"""Running a command so that Ctrl-C is heard whenever it is pressed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable
from typing import TypeVar

Value = TypeVar("Value")


def run_interruptibly(result: Awaitable[Value]) -> Value:
    """Await a result as `asyncio.run` does. Raises KeyboardInterrupt once that was interrupted.

    An interrupt that comes just before the loop goes to sleep is handled only after that has woken, which a question
    at a terminal may never make it do; with a signal handler of its own the loop wakes at every signal.
    """

    async def wait() -> Value:
        asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, lambda: None)
        return await result

    return asyncio.run(wait())
