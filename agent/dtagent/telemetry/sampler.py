"""Takes a sample of the host every second into a ring, and hands newer ones to who follows. Knows no sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Collection
from typing import Protocol

from dtagent.protocol.columns import EVERYTHING, Picker, Row, pack, unpack
from dtagent.protocol.telemetry import GpuSample, HostSample, TelemetryReply, TelemetryRequest
from dtagent.telemetry.gpu_watch import GpuSource, GpuWatch
from dtagent.telemetry.rank_use import RankProcesses
from dtagent.telemetry.ring import Ring

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

LIVE_INTERVAL_S = 0.1
"""The shortest that a client may ask for."""

LIVE_S = 2.0
"""For how long one such request is taken to stand."""

CORES_WANTED_S = 60.0
"""How long each CPU's use is read on after somebody asked for it."""


Complete = Callable[[HostSample, Collection[str]], HostSample]


class HostSource(Protocol):
    """What reads the host: `dtagent.telemetry.host.HostReader`."""

    def sample(
        self, seq: int, processes: RankProcesses, gpus: list[GpuSample], *, with_cores: bool = False
    ) -> HostSample:
        """Return one reading that includes the given GPUs, and each CPU's use if wanted."""


class Sampler:
    """A thread that samples the host, and those of a `GpuWatch`, because a broken driver may never answer.

    Args:
        make_probe: returns what reads the host, and has rates of its own.
        nvml: reads the GPUs.
        ranks: names the processes whose use is sampled; called on the sampling thread.
        interval_s: between two samples.
        ring_samples: how many are kept, at least.
        first_seq: number of the first sample. Where it grows from daemon to daemon, a client that comes back to
            another one than it left gets all of this one's. A sample that is not kept has that of the one before it.
        complete: adds what others know to a sample, given the jobs that run; called on the sampling thread.
    """

    def __init__(
        self,
        make_probe: Callable[[], HostSource],
        nvml: GpuSource,
        ranks: Callable[[], RankProcesses],
        interval_s: float = 1.0,
        ring_samples: int = RING_SAMPLES,
        first_seq: int = 1,
        complete: Complete = lambda sample, _running: sample,
    ) -> None:
        self._make_probe = make_probe
        self._host_probe = make_probe()
        self._live_probe: HostSource | None = None
        self._ranks = ranks
        self._complete = complete
        self._processes: RankProcesses = {}
        self._interval_s = interval_s
        self._gpus = GpuWatch(nvml, interval_s)
        self._thread = threading.Thread(target=self._run, name="host-sampler", daemon=True)
        self._stopping = threading.Event()
        self._lock = threading.Condition()
        self._ring = Ring(ring_samples, THIN_SAMPLES, THINNING, RING_BYTES)
        self._latest: HostSample | None = None
        """The newest of those that are kept."""
        self._live: HostSample | None = None
        """The newest of all."""
        self._taken = 0
        self._live_interval_s = interval_s
        self._live_until = float("-inf")
        self._hurry = threading.Event()
        self._first = first_seq
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
        self._hurry.set()
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

    async def wait(self, request: TelemetryRequest) -> None:
        """Wait until there is a sample newer than the request's, or `wait_s` is over.

        A client that asks for the newest one, and for a shorter interval than the sampler's own, gets a reading of its
        own, taken within that interval.
        """
        now = time.monotonic()
        deadline = now + max(request.wait_s, 0.0)
        if request.select is not None and "core_percents" in request.select.host:
            self._cores_until = now + CORES_WANTED_S
        with self._lock:
            taken_before = self._taken
        if self._is_live(request):
            self._ask_for_live(request.interval_s or 0.0)
        while True:
            waiter = _Waiter(asyncio.get_running_loop())
            with self._lock:
                left_s = deadline - time.monotonic()
                if self._has_news(request, taken_before) or left_s <= 0 or self._stopping.is_set():
                    return
                self._waiters.add(waiter)
            try:
                await asyncio.wait_for(waiter.woken.wait(), left_s)
            except asyncio.TimeoutError:
                pass  # The next look is the last.
            finally:
                with self._lock:
                    self._waiters.discard(waiter)

    def read(self, request: TelemetryRequest) -> TelemetryReply:
        """Return the samples newer than the request's that there are. Takes its time: not for the event loop.

        A reply holds the oldest of them first, and at most 300; the rest comes with the next request.
        A number this daemon has not reached yet is from one before it: everything is new then.
        """
        rows, missed = self._rows(request)
        if request.select is None:
            return TelemetryReply([unpack(row, EVERYTHING) for row in rows], missed)
        pick = Picker(request.select)
        return TelemetryReply([], missed, [pick(row) for row in rows])

    def _is_live(self, request: TelemetryRequest) -> bool:
        return request.after_seq is None and request.interval_s is not None and request.interval_s < self._interval_s

    def _ask_for_live(self, interval_s: float) -> None:
        interval_s = max(interval_s, LIVE_INTERVAL_S)
        now = time.monotonic()
        with self._lock:
            self._live_interval_s = min(interval_s, self._live_interval_s) if now < self._live_until else interval_s
            self._live_until = now + LIVE_S
        self._hurry.set()

    def _step_of(self, request: TelemetryRequest) -> int:
        return max(1, round((request.interval_s or 0.0) / self._interval_s))

    def _has_news(self, request: TelemetryRequest, taken_before: int) -> bool:
        if self._latest is None:
            return False
        if self._is_live(request):
            return self._taken > taken_before
        after = request.after_seq
        return after is None or after > self._seq or self._seq >= max(after, self._first - 1) + self._step_of(request)

    def _rows(self, request: TelemetryRequest) -> tuple[list[Row], int]:
        """Return the rows asked for that there are, and how many had gone that would have been among them."""
        after = request.after_seq
        with self._lock:
            latest = self._live if self._is_live(request) else self._latest
            oldest = self._ring.oldest
            if latest is None or oldest is None:
                return [], 0
            if after is None:
                return [pack(latest)], 0
            # Numbers of a daemon before this one say nothing of how much was missed.
            after = max(after, self._first - 1) if after <= self._seq else oldest - 1
            found = self._ring.after(after)
        step = self._step_of(request)
        count = min(max(request.max_samples, 1), MOST_SAMPLES)
        rows: list[Row] = []
        missed, before, due = 0, after, after + step
        for seq, row in found:
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
            self._guarded(self._step)
            due += self._interval_s
            late_s = time.monotonic() - due
            if late_s > 0:
                # After a suspended laptop or a long stall: no burst of samples to catch up.
                due += math.ceil(late_s / self._interval_s) * self._interval_s
            self._pause(due)

    def _pause(self, due: float) -> None:
        """Wait for the next sample that is kept; meanwhile read as often as a client asks for."""
        next_live = float("-inf")
        while not self._stopping.is_set() and (now := time.monotonic()) < due:
            with self._lock:
                is_wanted, interval_s = now < self._live_until, self._live_interval_s
            if not is_wanted:
                self._live_probe = None
            elif now >= next_live:
                next_live = now + interval_s
                self._guarded(self._glance)
                continue
            self._hurry.wait(min(due, next_live) - now if is_wanted else due - now)
            self._hurry.clear()

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - top of a worker: whatever it was, the next sample is due
            self._report(error)

    def _step(self) -> None:
        gpus = self._gpus.read()
        try:
            self._processes = self._ranks()
        except Exception as error:  # noqa: BLE001 - who the ranks are comes from elsewhere; the host is sampled without
            self._report(error)
            self._processes = {}
        with_cores = time.monotonic() < self._cores_until
        sample = self._host_probe.sample(self._seq + 1, self._processes, gpus, with_cores=with_cores)
        sample = self._complete(sample, self._processes)
        row = json.dumps(pack(sample), separators=(",", ":"), allow_nan=False).encode()
        with self._lock:
            self._seq = sample.seq
            self._latest = self._live = sample
            self._taken += 1
            self._ring.append(sample.seq, row)
            self._lock.notify_all()
        self._wake()

    def _glance(self) -> None:
        """Take a sample that is not kept, and that no rate of those that are depends on."""
        if self._live_probe is None:
            self._live_probe = self._make_probe()
        with_cores = time.monotonic() < self._cores_until
        sample = self._live_probe.sample(self._seq, self._processes, self._gpus.read(), with_cores=with_cores)
        sample = self._complete(sample, self._processes)
        with self._lock:
            self._live = sample
            self._taken += 1
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
