"""Blocking calls on attempts: on threads, a bounded number at once, and one at a time for each attempt."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dtagent.calls import LIMIT_S, Workers
from dtagent.errors import RpcError
from dtagent.protocol import sentences
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.rpc import ErrorCode

MAX_CHANGES = 32
"""Blocking calls on attempts under way; those that hang count."""
Request = TypeVar("Request")
Result = TypeVar("Result")


class Changes:
    """Runs what blocks, and sees to whose turn it is."""

    def __init__(self) -> None:
        self.locks = AttemptLocks()
        self._workers = Workers("change", MAX_CHANGES)

    async def run(self, act: Callable[[], Result]) -> Result:
        """Return what `act` returns, which has to hold by itself the locks that it needs."""
        return await self._workers.run(act)

    def in_turn(
        self, act: Callable[[Request], Result], *, alone: bool = False
    ) -> Callable[[Request], Awaitable[Result]]:
        """Return a call that runs `act` one at a time for each attempt.

        Args:
            act: takes the attempt's key, or a request with it.
            alone: one at a time on this host too: what sets GPUs and ports aside looks at all attempts.
        """

        def one_at_a_time(request: Request) -> Result:
            key: Any = getattr(request, "key", request)
            # Held by the thread that acts: a client that goes away must not let the next call in.
            with self.locks.hold(*([None] if alone else []), key):
                return act(request)

        async def call(request: Request) -> Result:
            return await self.run(lambda: one_at_a_time(request))

        return call


class AttemptLocks:
    """One change at a time for each attempt: a call that hangs on one holds up no other."""

    def __init__(self, patience_s: float = LIMIT_S - 5.0) -> None:
        self._patience_s = patience_s
        self._guard = threading.Lock()
        self._locks: dict[AttemptKey | None, _SharedLock] = {}
        """Of the attempts that somebody holds or waits for."""

    @contextlib.contextmanager
    def hold(self, *keys: AttemptKey | None) -> Iterator[None]:
        """Hold the locks, taken in the order given, on the thread that acts; `None` is what all prepares share.

        Raises:
            RpcError: BUSY, an earlier call has not come back.
        """
        with contextlib.ExitStack() as stack:
            for key in keys:
                stack.enter_context(self._hold_one(key))
            yield

    @contextlib.contextmanager
    def _hold_one(self, key: AttemptKey | None) -> Iterator[None]:
        with self._guard:
            shared = self._locks.setdefault(key, _SharedLock())
            shared.users += 1
        try:
            if not shared.lock.acquire(timeout=self._patience_s):
                busy = sentences.PREPARE_BUSY()
                if key:
                    busy = sentences.ATTEMPT_BUSY(attempt=key.attempt, job=key.job_id)
                raise RpcError(ErrorCode.BUSY, busy)
            try:
                yield
            finally:
                shared.lock.release()
        finally:
            with self._guard:
                shared.users -= 1
                if not shared.users:
                    del self._locks[key]


@dataclass
class _SharedLock:
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
