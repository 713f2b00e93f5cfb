"""Has it looked whose the GPUs of this host are, every few seconds and after each change here, for the samples."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from dataclasses import replace

from dtagent.attempts.holdings import Holdings
from dtagent.attempts.waiting_line import WaitingLine, told
from dtagent.calls import Workers
from dtagent.protocol.telemetry import GpuHold, GpuWait, HostSample

LOG = logging.getLogger("dtagent")
LOOK_S = 2.0
"""Between two looks."""


class SharingWatch:
    """Keeps the newest look, so that a sample costs nothing."""

    def __init__(self, holdings: Holdings, line: WaitingLine) -> None:
        self._holdings = holdings
        self._line = line
        self._waits: list[GpuWait] = []
        self._found: tuple[list[GpuHold], list[GpuHold]] | None = None
        self._is_due = asyncio.Event()

    def look_soon(self) -> None:
        """Look at once: something has changed here."""
        self._is_due.set()

    def complete(self, sample: HostSample, running: Collection[str]) -> HostSample:
        """Add what is known to a sample, but of no job of this user that is over; on any thread."""
        if self._found is None:
            return sample
        own, others = self._found
        holds = [*(hold for hold in own if hold.job in running), *others]
        return replace(sample, holds=holds, waits=self._waits)

    def holds(self) -> list[GpuHold]:
        """Return who has GPUs, as far as it has been looked."""
        own, others = self._found or ([], [])
        return [*own, *others]

    def _look(self) -> tuple[tuple[list[GpuHold], list[GpuHold]], list[GpuWait]]:
        return self._holdings.look(), [told(waiter) for waiter in self._line.waiters()]

    async def watch(self) -> None:
        """Look until cancelled."""
        workers, failure = Workers("sharing", 1), ""
        while True:
            self._is_due.clear()
            try:
                self._found, self._waits = await workers.run(self._look)
                failure = ""
            except Exception as error:  # The top of a worker: told when it begins or changes.
                if repr(error) != failure:
                    failure = repr(error)
                    LOG.exception("cannot look whose the GPUs are")
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._is_due.wait(), LOOK_S)
