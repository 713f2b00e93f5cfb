"""An event loop whose clock stands still while its process does: stopped by a signal, or starved.

Whatever came in meanwhile is read before any deadline passes, so nobody is called silent who only was not listened to.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

TICK_S = 1.0
"""The loop looks at its clock at least so often."""
MOST_GAP_S = 2.0
"""Between two looks; a longer one was no wait of the loop's own, and no silence of less than the shortest heartbeat."""
LEAST_AWAY_S = 5.0
"""For how long this process, or the whole machine, must have stood still for links to have broken by that."""
RECOVERY_S = 10.0
"""After waking, how long links may take to be made anew before that counts as silence."""

Value = TypeVar("Value")


class AwakeLoop(asyncio.SelectorEventLoop):
    """Counts only the time in which it ran."""

    def __init__(self) -> None:
        self._asleep_s = 0.0
        self._looked_at = time.monotonic()
        self._boottime = _boottime()
        self._woke_at = float("-inf")
        super().__init__()

    def time(self) -> float:
        """Return monotonic seconds, without those that were slept through."""
        now, boottime = time.monotonic(), _boottime()
        gap_s, self._looked_at = now - self._looked_at, now
        # The monotonic clock itself stands still while the machine is suspended; connections do not outlive that.
        away_s, self._boottime = boottime - self._boottime, boottime
        if gap_s > MOST_GAP_S:
            self._asleep_s += gap_s
        if away_s > LEAST_AWAY_S:
            self._woke_at = now - self._asleep_s
        return now - self._asleep_s

    def tick(self) -> None:
        """Look at the clock from now on at least every second."""
        self.call_later(TICK_S, self.tick)

    @property
    def has_just_woken(self) -> bool:
        """Whether links that broke may have done so because nobody was there."""
        return self.time() - self._woke_at < RECOVERY_S


def has_just_woken() -> bool:
    """Whether the running loop slept until a moment ago; a loop of another kind never did."""
    loop = asyncio.get_running_loop()
    return isinstance(loop, AwakeLoop) and loop.has_just_woken


def run_awake(main: Coroutine[Any, Any, Value]) -> Value:
    """Run a coroutine as `asyncio.run` does, on a loop that counts only the time in which it ran."""
    loop = AwakeLoop()
    try:
        asyncio.set_event_loop(loop)
        loop.tick()
        try:
            return loop.run_until_complete(main)
        finally:
            _cancel_all(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
