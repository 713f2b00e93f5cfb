"""What the daemon sees to unasked: what old attempts left, what has had its time, whether anybody needs it still."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from pathlib import Path

from dtagent.attempts.attempts import Attempts
from dtagent.daemon import error_log
from dtagent.daemon.attempt_calls import Changes
from dtagent.locations import socket_path

LOG = logging.getLogger("dtagent")
INTERVAL_S = 30.0
"""Between two looks for what has had its time: leases, warm processes, a long log."""
IDLENESS_TURN_S = 5.0


class Housekeeping:
    """Keeps the state directory and the host clean. Its loops run until they are cancelled.

    Args:
        root: the state directory.
        attempts: those of this host.
        changes: in whose turn something is changed.
        expire: ends what else has had its time.
    """

    def __init__(self, root: Path, attempts: Attempts, changes: Changes, *expire: Callable[[], None]) -> None:
        self._root = root
        self._attempts = attempts
        self._others = expire
        self._changes = changes
        self._is_due = asyncio.Event()
        self._is_due.set()

    def remove_old_soon(self) -> None:
        """Have what old attempts left looked for; nobody waits for it."""
        self._is_due.set()

    async def remove_old(self) -> None:
        """Remove what old attempts left, one at a time: other calls get their turn in between."""
        retention = self._attempts.retention
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            try:
                for key in await self._changes.run(retention.old):
                    await self._changes.in_turn(retention.clear, alone=True)(key)
                await self._changes.run(self._attempts.tidy)
            except Exception:  # The top of a worker: the next turn may go better.
                LOG.exception("cannot clean up")

    async def expire(self) -> None:
        """End what has had its time, of several kinds: one of which hangs, on a dead disk say, holds up no other."""
        acts = (*self._others, self._expire_leases, lambda: error_log.turn_over(self._root))
        await asyncio.gather(*map(self._repeat, acts))

    async def _repeat(self, act: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self._changes.run(act)
            except Exception:  # The top of a worker: the next turn may go better.
                LOG.exception("cannot clean up")

    def _expire_leases(self) -> None:
        with self._changes.locks.hold(None):
            self._attempts.expire_leases()


async def watch_idleness(
    root: Path, limit_s: float | None, is_needed: Callable[[], bool], finish: Callable[[str], None]
) -> None:
    """Finish a daemon that is of no use.

    Args:
        root: its state directory.
        limit_s: how long nobody may need it; `None` for without end.
        is_needed: whether a client is connected, or a job runs.
        finish: takes the reason.
    """
    limit_s = math.inf if limit_s is None else limit_s
    turn_s, idle_s = min(IDLENESS_TURN_S, limit_s / 2), 0.0
    while True:
        await asyncio.sleep(turn_s)
        # By turns and not by the clock: whoever lost the connection while this host slept gets time to come back.
        idle_s = 0.0 if is_needed() else idle_s + turn_s
        if idle_s > limit_s:
            finish(f"nobody has needed it for {limit_s:g} s")
        # Without its socket nobody can reach this daemon, and its lock keeps another from starting.
        elif not socket_path(root).exists():
            finish("its socket is gone")
