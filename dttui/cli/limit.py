"""`--timeout`: the one bound around a verb as a whole, and what is said where it is reached.

What a verb has done by then stays done, and what it has begun is taken back or goes on without it, as after Ctrl-C: the
same command takes it up again.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from dttui.errors import NotFinishedError
from dttui.i18n import _

if TYPE_CHECKING:
    from types import FrameType

Value = TypeVar("Value")
AGAIN_S = 0.01
CLOSING_S = 5.0
"""How long what was broken off may take to close its connections."""


class TimeIsUpError(BaseException):
    """Ends whatever is under way: no handler of errors is to take it for one."""


class TimeLimit:
    """Bounds what is done inside; with `options.timeout` being `None` nothing is bounded.

    Args:
        options: the command line; its `unfinished` says what is left where the time is up.
    """

    def __init__(self, options: Namespace) -> None:
        self._options = options
        self._seconds: float | None = options.timeout
        self._before: Callable[[sys.UnraisableHookArgs], object] | None = None
        self._is_main = threading.current_thread() is threading.main_thread()
        if self._seconds is not None:
            options.until = time.monotonic() + self._seconds

    def __enter__(self) -> TimeLimit:
        if self._seconds is not None and self._is_main:
            signal.signal(signal.SIGALRM, self._ring)
            self._before, sys.unraisablehook = sys.unraisablehook, self._swallowed
            signal.setitimer(signal.ITIMER_REAL, self._seconds)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            sys.unraisablehook = self._before
        self._silence()
        if isinstance(error, TimeIsUpError):
            message = _("not finished within {seconds:g} s").format(seconds=self._seconds or 0.0)
            hint = self._options.unfinished or _("Run the same command again.")
            raise NotFinishedError(message, hint) from None

    async def around(self, operation: Awaitable[Value]) -> Value:
        """Return what an operation gives. Raises TimeIsUpError once it was broken off and has cleaned up."""
        import asyncio  # Who only looks at jobs need not load it.

        if self._seconds is None:
            return await operation
        self._silence()  # From here on the loop's own clock counts, which breaks off nothing between two awaits.
        task = asyncio.ensure_future(operation)
        try:
            await asyncio.wait({task}, timeout=max(0.0, self._options.until - time.monotonic()))
            if not task.done() and self._options.tells_late:  # It ends by itself by then, and tells what was done.
                await asyncio.wait({task}, timeout=CLOSING_S)
            if task.done():
                return task.result()
            task.cancel()
            await asyncio.wait({task}, timeout=CLOSING_S)
            if task.done() and not task.cancelled():
                return task.result()  # It came at the last moment.
            raise TimeIsUpError
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _silence(self) -> None:
        if self._seconds is not None and self._is_main:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _swallowed(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Ring again where it rang in what nothing can be raised from, as a generator that is let go."""
        if issubclass(unraisable.exc_type, TimeIsUpError):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        elif self._before is not None:
            self._before(unraisable)

    @staticmethod
    def _ring(_number: int, _frame: FrameType | None) -> None:
        raise TimeIsUpError
