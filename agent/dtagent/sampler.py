"""Takes a sample of the host every second into a ring, and hands newer ones to who follows. Knows no sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Protocol

from dtagent.gpu_watch import GpuSource, GpuWatch
from dtagent.protocol.columns import EVERYTHING, Picker, Row, pack, unpack
from dtagent.protocol.telemetry import GpuSample, HostSample, TelemetryReply, TelemetryRequest
from dtagent.rank_use import RankProcesses
from dtagent.ring import Ring

_log = logging.getLogger(__name__)

RING_SAMPLES = 3600
"""An hour at one a second: how long a client may be cut off and miss nothing."""

THINNING = 30
THIN_SAMPLES = 24 * 3600 // THINNING
"""A day of every thirtieth, for a client that was away for longer."""

RING_BYTES = 5 * 1024 * 1024 // 2
"""Bound of either part, above what 8 busy GPUs and as many RDMA ports take."""

MOST_SAMPLES = 300
"""In one reply, so that it stays well below `rpc.MAX_FRAME_BYTES` with 16 busy GPUs."""

MOST_WAIT_S = 60.0

CORES_WANTED_S = 60.0
"""How long each CPU's use is read on after somebody asked for it."""


class HostSource(Protocol):
    """What reads the host: `dtagent.host.HostProbe`."""

    def sample(
        self, seq: int, processes: RankProcesses, gpus: list[GpuSample], *, with_cores: bool = False
    ) -> HostSample:
        """Return one reading that includes the given GPUs, and each CPU's use if wanted."""


class Sampler:
    """A thread that samples the host, and those of a `GpuWatch`, because a broken driver may never answer.

    Args:
        host_probe: reads the host.
        nvml: reads the GPUs.
        ranks: names the processes whose use is sampled; called on the sampling thread.
        interval_s: between two samples.
        ring_samples: how many are kept, at least.
        first_seq: number of the first sample. Where it grows from daemon to daemon, a client that comes back to
            another one than it left gets all of this one's.
    """

    def __init__(
        self,
        host_probe: HostSource,
        nvml: GpuSource,
        ranks: Callable[[], RankProcesses],
        interval_s: float = 1.0,
        ring_samples: int = RING_SAMPLES,
        first_seq: int = 1,
    ) -> None:
        self._host_probe = host_probe
        self._ranks = ranks
        self._interval_s = interval_s
        self._gpus = GpuWatch(nvml, interval_s)
        self._thread = threading.Thread(target=self._run, name="host-sampler", daemon=True)
        self._stopping = threading.Event()
        self._lock = threading.Condition()
        self._ring = Ring(ring_samples, THIN_SAMPLES, THINNING, RING_BYTES)
        self._latest: HostSample | None = None
        self._seq = first_seq - 1
        self._cores_until = float("-inf")
        self._waiters: set[_Waiter] = set()
        self._last_failure = ""

    def start(self) -> None:
        """Begin to sample. Once in an object's life."""
        self._gpus.start()
        self._thread.start()

    def stop(self) -> None:
        """End the threads, but a GPU call that hangs is left behind; followers get what there is."""
        self._stopping.set()
        self._gpus.stop()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)
        self._wake()

    def latest(self) -> HostSample | None:
        """Return the newest sample; `None` before the first."""
        with self._lock:
            return self._latest

    def wait_for(self, is_good: Callable[[HostSample], bool], timeout_s: float) -> HostSample | None:
        """Return the first sample that is good, from the newest on; the newest, of whatever kind, when time is up.

        `None` where there was none at all. Not for the event loop: it blocks.
        """
        with self._lock:
            self._lock.wait_for(lambda: self._latest is not None and is_good(self._latest), timeout_s)
            return self._latest

    async def follow(self, request: TelemetryRequest) -> TelemetryReply:
        """Return samples newer than the request's, at once if there are some, else as soon as there is one.

        A reply holds the oldest of them first, and at most 300; the rest comes with the next request.
        It is empty when `wait_s` is over. A number this daemon has not reached yet is from one before it: everything
        is new then.
        """
        deadline = time.monotonic() + min(max(request.wait_s, 0.0), MOST_WAIT_S)
        if request.select is not None and "core_percents" in request.select.host:
            self._cores_until = time.monotonic() + CORES_WANTED_S
        while True:
            waiter = _Waiter(asyncio.get_running_loop())
            with self._lock:
                rows, missed = self._rows(request)
                left_s = deadline - time.monotonic()
                if rows or left_s <= 0 or self._stopping.is_set():
                    break
                self._waiters.add(waiter)
            try:
                await asyncio.wait_for(waiter.woken.wait(), left_s)
            except asyncio.TimeoutError:
                pass  # The next look is the last.
            finally:
                with self._lock:
                    self._waiters.discard(waiter)
        if request.select is None:
            return TelemetryReply([unpack(row, EVERYTHING) for row in rows], missed)
        pick = Picker(request.select)
        return TelemetryReply([], missed, [pick(row) for row in rows])

    def _rows(self, request: TelemetryRequest) -> tuple[list[Row], int]:
        """Return the rows asked for that there are, and how many had gone that would have been among them."""
        if self._latest is None:
            return [], 0
        after = request.after_seq
        if after is None:
            return [pack(self._latest)], 0
        oldest = self._ring.oldest
        if oldest is None:
            return [], 0
        if after > self._seq:
            after = oldest - 1
        step = max(1, round((request.interval_s or 0.0) / self._interval_s))
        count = min(max(request.max_samples, 1), MOST_SAMPLES)
        rows: list[Row] = []
        missed, before, due = 0, after, after + step
        for seq, row in self._ring.after(after):
            gap, before = seq - before, seq
            missed += gap - 1 if gap > step else 0
            if seq >= due:
                rows.append(json.loads(row))
                due = seq + step
                if len(rows) == count:
                    break
        return rows, missed if rows else 0

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
            try:
                self._step()
            except Exception as error:  # noqa: BLE001 - top of a worker: whatever it was, the next sample is due
                self._report(error)
            due += self._interval_s
            late_s = time.monotonic() - due
            if late_s > 0:
                # After a suspended laptop or a long stall: no burst of samples to catch up.
                due += math.ceil(late_s / self._interval_s) * self._interval_s
            self._stopping.wait(due - time.monotonic())

    def _step(self) -> None:
        gpus = self._gpus.read()
        try:
            processes = self._ranks()
        except Exception as error:  # noqa: BLE001 - who the ranks are comes from elsewhere; the host is sampled without
            self._report(error)
            processes = {}
        with_cores = time.monotonic() < self._cores_until
        sample = self._host_probe.sample(self._seq + 1, processes, gpus, with_cores=with_cores)
        row = json.dumps(pack(sample), separators=(",", ":"), allow_nan=False).encode()
        with self._lock:
            self._seq = sample.seq
            self._latest = sample
            self._ring.append(sample.seq, row)
            self._lock.notify_all()
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            waiter.wake()

    def _report(self, error: Exception) -> None:
        """Log a failure when it begins or changes, not once a second."""
        failure = repr(error)
        if failure != self._last_failure:
            self._last_failure = failure
            _log.error("sampling failed and goes on: %s", failure, exc_info=error)


class _Waiter:
    """A follower that waits on its event loop for the sampling thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.woken = asyncio.Event()

    def wake(self) -> None:
        """Wake it; from any thread."""
        # RuntimeError: its loop was closed meanwhile, and nobody waits any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.woken.set)
