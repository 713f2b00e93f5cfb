"""Holds an attempt back until it may begin: until its time, or until what was left of others is gone, with secrets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from dttui.engine.context import JobContext
from dttui.engine.lost_hosts import LostHosts
from dttui.engine.recovered import RecoveredState
from dttui.i18n import msg
from dttui.jobs.event_log import SECRETS_AWAITED
from dttui.spec.findings import Finding, info, warning
from dttui.timestamps import elapsed_s

SECRETS_S = 5.0
"""How often it is looked whether secrets have come to lie beside the job file."""


class Pause:
    """The time between two attempts of a job.

    Args:
        job: whose.
        lost_hosts: those on which something of an earlier attempt may still run.
        stopping: set once the job is to stop.
        tell: tells a finding between two attempts.
    """

    def __init__(
        self, job: JobContext, lost_hosts: LostHosts, stopping: asyncio.Event, tell: Callable[[Finding], None]
    ) -> None:
        self._job = job
        self._lost_hosts = lost_hosts
        self._stopping = stopping
        self._tell = tell
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look at once whether secrets are known: somebody came who may have brought them."""
        self._woken.set()

    async def over(self, following: RecoveredState) -> bool:
        """Wait until an attempt may begin that was promised; return whether it may: it was not stopped."""
        promise = following.promise
        waits_on = following.is_promised or (following.is_new and self._job.is_queued)
        if waits_on and not await self._wait_for_secrets():
            return False
        if not following.is_held_back:
            return True
        left_s = min(elapsed_s(time.time(), promise.not_before), promise.delay_s)
        deadline = asyncio.get_running_loop().time() + left_s
        needed = set(promise.awaited)
        if not needed <= set(self._lost_hosts.open):
            needed = set()  # Of a host that was out of reach, and where nothing is left, nobody tells when it is back.
        while not self._stopping.is_set():
            rest_s = deadline - asyncio.get_running_loop().time()
            if rest_s <= 0 or (needed and not needed & set(self._lost_hosts.open)):
                return True
            self._lost_hosts.changed.clear()
            waiting = [asyncio.create_task(event.wait()) for event in (self._stopping, self._lost_hosts.changed)]
            try:
                await asyncio.wait(waiting, timeout=rest_s, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()
        return False

    async def _wait_for_secrets(self) -> bool:
        """Wait until all secrets are known without which no rank is to begin; return whether they are: no stop came."""
        told = False
        while missing := await asyncio.to_thread(self._job.missing_secrets):
            if not told:
                told = True
                message = msg(
                    "waiting for the values of {names}, which another attempt needs", names=", ".join(missing)
                )
                hint = msg("Export them and call `dttui attach`, or write them to secrets.env beside the job file.")
                self._tell(warning(SECRETS_AWAITED, "run.secrets", message, hint))
            self._woken.clear()
            waiting = [asyncio.create_task(event.wait()) for event in (self._stopping, self._woken)]
            try:
                await asyncio.wait(waiting, timeout=SECRETS_S, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()
            if self._stopping.is_set():
                return False
        if told:
            self._tell(info(SECRETS_AWAITED, "run.secrets", msg("all secrets are known again")))
        return True
