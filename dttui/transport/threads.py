"""The threads that SSH runs on. asyncio's own small pool is never used, so that nothing else starves with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

CONNECTING_THREADS = 128
"""With hosts that take half a second to answer, 200 connect in 2.7 s on 64 threads, in 7.8 s on 16."""
TRAFFIC_THREADS = 32
"""Apart from those that connect: a name server that hangs must not hold up an established connection."""


class Threads:
    """Two pools that grow as needed. Threads stay until `close`."""

    def __init__(self) -> None:
        self._closed = False
        self._connecting = ThreadPoolExecutor(CONNECTING_THREADS, thread_name_prefix="dttui-connect")
        self._traffic = ThreadPoolExecutor(TRAFFIC_THREADS, thread_name_prefix="dttui-traffic")

    async def connecting(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a blocking step of making a connection. Raises OSError after `close`."""
        return await self._run(self._connecting, function, *arguments)

    async def traffic(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a read, write or close that should take no time but might. Raises OSError after `close`."""
        return await self._run(self._traffic, function, *arguments)

    def close(self) -> None:
        """Let go of all threads; one that is still blocked ends with its own time limit."""
        self._closed = True
        self._connecting.shutdown(wait=False, cancel_futures=True)
        self._traffic.shutdown(wait=False, cancel_futures=True)

    async def _run(self, pool: ThreadPoolExecutor, function: Callable[..., T], *arguments: object) -> T:
        if self._closed:
            raise ConnectionAbortedError("the transport is closed")
        return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)
