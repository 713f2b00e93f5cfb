"""Reads the GPUs on a thread of its own, and on a spare one where a call hangs: one broken GPU hides no other."""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from dtagent.protocol.telemetry import GpuSample
from dtagent.telemetry.nvml import silence

_log = logging.getLogger(__name__)

STALE_INTERVALS = 3
"""How many intervals a GPU reading may be old before it is withheld."""

_DRIVER = -1
"""Stands among the GPUs' indices for the driver as a whole: initialising it, listening to its events."""


class GpuSource(Protocol):
    """What reads the GPUs: `dtagent.telemetry.nvml.Nvml`. Calls may block."""

    def refresh(self) -> int:
        """See to the driver; return how many GPUs there are."""

    def read(self, index: int) -> GpuSample:
        """Read one GPU."""

    def asking(self, index: int) -> str:
        """Name the function it is being asked by."""


class GpuWatch:
    """Takes the GPUs' readings in turn; one that hangs is left to its thread, and another goes on with the rest.

    There are never more threads than GPUs that hang, and one.

    Args:
        nvml: reads the GPUs.
        interval_s: between two readings.
    """

    def __init__(self, nvml: GpuSource, interval_s: float) -> None:
        self._nvml = nvml
        self._stale_s = STALE_INTERVALS * interval_s
        self._patience_s = interval_s / 4
        self._condition = threading.Condition()
        self._stopping = False
        self._worker: threading.Thread | None = None
        """The one that takes the next reading; a thread that finds another here ends."""
        self._pending: list[int] = []
        self._reading: dict[int, threading.Thread] = {}
        self._count = 0
        self._samples: dict[int, GpuSample] = {}
        self._answered_at: dict[int, float] = {}
        self._last_failure = ""

    def start(self) -> None:
        """Begin; the first reading is taken when it is asked for."""
        with self._condition:
            self._hire()

    def stop(self) -> None:
        """End, but a call that hangs is left behind."""
        with self._condition:
            self._stopping = True
            worker = self._worker
            self._condition.notify_all()
        if worker is not None and worker.is_alive():
            worker.join(timeout=1.0)

    def read(self) -> list[GpuSample]:
        """Return a new reading, or of a GPU that has not answered within a quarter of an interval what is known.

        Empty until something is known of every one.
        """
        with self._condition:
            if self._worker in self._reading.values():
                # It has been at this one since the reading before: somebody else shall go on.
                self._hire()
            # Who had no turn last time comes first: with a slow driver the last GPU would never have one.
            busy = {*self._reading, *self._pending}
            self._pending += [index for index in range(_DRIVER, self._count) if index not in busy]
            self._condition.notify_all()
            self._condition.wait_for(self._is_done, self._patience_s)
            now = time.monotonic()
            known = [self._known(index, now) for index in range(self._count)]
            # At the very start: a GPU that nothing is known of would pass for a free one.
            return [] if None in known else [sample for sample in known if sample is not None]

    def _is_done(self) -> bool:
        return not self._pending and self._worker not in self._reading.values()

    def _hire(self) -> None:
        self._worker = threading.Thread(target=self._run, name="gpu-sampler", daemon=True)
        self._worker.start()

    def _known(self, index: int, now: float) -> GpuSample | None:
        silent_s = now - self._answered_at.setdefault(index, now)
        if silent_s > self._stale_s:
            return GpuSample(index, error=silence(silent_s, self._nvml.asking(index)))
        return self._samples.get(index)

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._pending or self._stopping or self._worker is not me)
                if self._stopping or self._worker is not me:
                    return
                index = self._pending.pop(0)
                self._reading[index] = me
            sample = self._take(index)
            with self._condition:
                del self._reading[index]
                if sample is not None:
                    self._samples[index], self._answered_at[index] = sample, time.monotonic()
                if self._is_done():
                    self._condition.notify_all()

    def _take(self, index: int) -> GpuSample | None:
        try:
            if index == _DRIVER:
                self._see_to_driver()
                return None
            return self._nvml.read(index)
        except Exception as error:  # noqa: BLE001 - top of a worker: the GPU then shows as not answering
            if repr(error) != self._last_failure:
                self._last_failure = repr(error)
                _log.error("reading the GPUs failed and goes on", exc_info=error)
            return None

    def _see_to_driver(self) -> None:
        count = self._nvml.refresh()
        with self._condition:
            if count > self._count:
                busy = {*self._reading, *self._pending}
                self._pending += [index for index in range(self._count, count) if index not in busy]
            self._count = count
