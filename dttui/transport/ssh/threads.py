"""The threads that SSH runs on, and their way back to the event loop. asyncio's own small pool is never used."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import functools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TypeVar

from dttui.errors import is_short_of_threads
from dttui.transport.turns import Turns

T = TypeVar("T")

CONNECTING_THREADS = 1024
"""Nearly all of them wait, for hosts that stall while one logs in; how many compute at a time is decided elsewhere."""
FORWARDING_THREADS = 512
"""Apart from those that connect: a jump host may take long to reach what is behind it."""
LOOK_UPS = 1000
"""Threads that may wait for name servers."""
TRAFFIC_THREADS = 1024
"""Apart from those that connect: a name server that hangs must not hold up an established connection."""
TRAFFIC_AT_ONCE = 32
TRAFFIC_S = 0.5
"""How long a write takes at most, unless the host takes nothing: such hosts hold a thread each, and up nobody else."""
GATHER_S = 0.01
"""How long word of many streams is gathered, so that a thousand lines a second wake the event loop a hundred times."""
MANY_STREAMS = 4
"""So many in that time are worth it; a conversation with one host is never made to wait."""


class Wakeups:
    """Has the event loop call functions for other threads, several at one wake-up where there are many."""

    def __init__(self) -> None:
        """For the event loop that runs now."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._calls: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._due = False
        self._recent: set[Callable[[], None]] = set()
        self._since_s = 0.0

    def call(self, function: Callable[[], None]) -> None:
        """Have it called soon, on the event loop at once; safe in any thread. It must not raise."""
        if threading.get_ident() == self._thread:
            function()
            return
        with self._lock:
            self._calls.append(function)  # Outside, it could come while those before it are taken out, and be lost.
            if self._due:
                return
            self._due = True
        with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
            self._loop.call_soon_threadsafe(self._flush)

    def _flush(self) -> None:
        now_s = self._loop.time()
        if now_s - self._since_s > GATHER_S * 2:
            self._recent.clear()
            self._since_s = now_s
        with self._lock:
            calls, self._calls = self._calls, []
            self._recent.update(calls)
            self._due = is_busy = len(self._recent) >= MANY_STREAMS
        if is_busy:
            self._recent.clear()
            self._since_s = now_s
            self._loop.call_later(GATHER_S, self._flush)
        for function in calls:
            function()


class Threads:
    """Pools that grow as needed. Threads stay until `close`."""

    def __init__(self) -> None:
        self._closed = False
        self._connecting = ThreadPoolExecutor(CONNECTING_THREADS, thread_name_prefix="dttui-connect")
        self._forwarding = ThreadPoolExecutor(FORWARDING_THREADS, thread_name_prefix="dttui-forward")
        self._look_ups = asyncio.Semaphore(LOOK_UPS)
        self._traffic_turns = Turns(TRAFFIC_AT_ONCE, TRAFFIC_S)
        self._traffic = ThreadPoolExecutor(TRAFFIC_THREADS, thread_name_prefix="dttui-traffic")

    @cached_property
    def wakeups(self) -> Wakeups:
        """The way back to the event loop, which has to run at the first use."""
        return Wakeups()

    async def connecting(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a blocking step of making a connection. Raises OSError after `close`."""
        return await self._run(self._connecting, function, *arguments)

    async def forwarding(self, function: Callable[..., T], *arguments: object) -> T:
        """Run what waits for a jump host to reach another. Raises OSError after `close`."""
        return await self._run(self._forwarding, function, *arguments)

    async def looking_up(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a look-up of a name, in a thread of its own: the end of dttui waits for no name server."""
        loop = asyncio.get_running_loop()
        async with self._look_ups:
            found: asyncio.Future[T] = loop.create_future()
            call = functools.partial(contextvars.copy_context().run, function, *arguments)
            with _as_os_error():
                threading.Thread(target=_settle, args=(loop, found, call), daemon=True).start()
            return await found

    async def traffic(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a read, write or close that should take no time but might. Raises OSError after `close`."""
        async with self._traffic_turns.turn():
            return await self._run(self._traffic, function, *arguments)

    def close(self) -> None:
        """Let go of all threads; one that is still blocked ends with its own time limit."""
        self._closed = True
        self._connecting.shutdown(wait=False, cancel_futures=True)
        self._forwarding.shutdown(wait=False, cancel_futures=True)
        self._traffic.shutdown(wait=False, cancel_futures=True)

    async def _run(self, pool: ThreadPoolExecutor, function: Callable[..., T], *arguments: object) -> T:
        if self._closed:
            raise ConnectionAbortedError("the transport is closed")
        with _as_os_error():
            return await asyncio.get_running_loop().run_in_executor(
                pool, contextvars.copy_context().run, function, *arguments
            )


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    """Raise that no more threads can be started as what it is: the system's answer, as for a process."""
    try:
        yield
    except RuntimeError as error:
        if not is_short_of_threads(error):
            raise
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error


def _settle(loop: asyncio.AbstractEventLoop, outcome: asyncio.Future[T], function: Callable[[], T]) -> None:
    """In a thread: have the event loop learn what came of a function."""
    try:
        act = functools.partial(outcome.set_result, function())
    except Exception as error:  # noqa: BLE001 - whoever waits is told of whatever it was
        act = functools.partial(outcome.set_exception, error)
    with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
        loop.call_soon_threadsafe(lambda: None if outcome.done() else act())
