"""Takes a sample of the host every second into a ring, and hands newer ones to who follows. Knows no sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from dtagent.host import RankProcesses
from dtagent.protocol.telemetry import GpuSample, HostSample, TelemetryReply, TelemetryRequest

_log = logging.getLogger(__name__)

RING_SAMPLES = 3600
"""An hour at one a second: how long a client may be cut off and miss nothing."""

MOST_SAMPLES = 300
"""In one reply, so that it stays well below `rpc.MAX_FRAME_BYTES` with 16 busy GPUs."""

MOST_WAIT_S = 60.0

STALE_INTERVALS = 3
"""How many intervals a GPU reading may be old before it is withheld."""


class HostSource(Protocol):
    """What reads the host: `dtagent.host.HostProbe`."""

    def sample(self, seq: int, processes: RankProcesses, gpus: list[GpuSample]) -> HostSample:
        """Return one reading that includes the given GPUs."""


class GpuSource(Protocol):
    """What reads the GPUs: `dtagent.nvml.Nvml`."""

    def sample(self) -> list[GpuSample]:
        """Return one reading of every GPU. May block."""


class Sampler:
    """Two threads: one samples the host, and one reads the GPUs for it, because a broken driver may never answer.

    Args:
        host_probe: reads the host.
        nvml: reads the GPUs.
        ranks: names the processes whose use is sampled; called on the sampling thread.
        interval_s: between two samples.
        ring_samples: how many are kept.
    """

    def __init__(
        self,
        host_probe: HostSource,
        nvml: GpuSource,
        ranks: Callable[[], RankProcesses],
        interval_s: float = 1.0,
        ring_samples: int = RING_SAMPLES,
    ) -> None:
        self._host_probe = host_probe
        self._ranks = ranks
        self._interval_s = interval_s
        self._gpus = _GpuReader(nvml, interval_s)
        self._thread = threading.Thread(target=self._run, name="host-sampler", daemon=True)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        # Packed: an hour of 8 GPUs takes 5 MiB so, and 21 as objects, in a daemon of 20.
        self._ring: deque[bytes] = deque(maxlen=ring_samples)
        self._latest: HostSample | None = None
        self._seq = 0
        self._waiters: set[_Waiter] = set()
        self._last_failure = ""

    def start(self) -> None:
        """Begin to sample. Once in an object's life."""
        self._gpus.start()
        self._thread.start()

    def stop(self) -> None:
        """End both threads, but a GPU call that hangs is left behind; followers get what there is."""
        self._stopping.set()
        self._gpus.stop()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)
        self._wake()

    def latest(self) -> HostSample | None:
        """Return the newest sample; `None` before the first."""
        with self._lock:
            return self._latest

    async def follow(self, request: TelemetryRequest) -> TelemetryReply:
        """Return samples newer than the request's, at once if there are some, else as soon as there is one.

        A reply holds the oldest of them first, and at most 300; the rest comes with the next request.
        It is empty when `wait_s` is over. A number this daemon has not reached yet is from one before it: everything
        is new then.
        """
        waiter = _Waiter(asyncio.get_running_loop())
        with self._lock:
            reply = self._reply(request)
            if reply.samples or self._stopping.is_set():
                return reply
            self._waiters.add(waiter)
        wait_s = min(max(request.wait_s, 0.0), MOST_WAIT_S)
        try:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(waiter.woken.wait(), wait_s)
        finally:
            with self._lock:
                self._waiters.discard(waiter)
        with self._lock:
            return self._reply(request)

    def _reply(self, request: TelemetryRequest) -> TelemetryReply:
        if self._latest is None:
            return TelemetryReply()
        after = request.after_seq
        if after is None:
            return TelemetryReply([self._latest])
        # The ring has no gaps, so numbers are positions.
        oldest = self._seq - len(self._ring) + 1
        if after > self._seq:
            after = oldest - 1
        first = max(0, after + 1 - oldest)
        count = min(max(request.max_samples, 1), MOST_SAMPLES)
        packed = islice(self._ring, first, first + count)
        samples = [pickle.loads(item) for item in packed]  # noqa: S301 - packed by this process
        return TelemetryReply(samples, missed=max(0, oldest - after - 1))

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
        sample = self._host_probe.sample(self._seq + 1, processes, gpus)
        packed = pickle.dumps(sample, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            self._seq = sample.seq
            self._latest = sample
            self._ring.append(packed)
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


class _GpuReader:
    """Reads the GPUs on its own thread when asked, and gives what is known if that takes too long."""

    def __init__(self, nvml: GpuSource, interval_s: float) -> None:
        self._nvml = nvml
        self._stale_s = STALE_INTERVALS * interval_s
        self._patience_s = interval_s / 4
        self._condition = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="gpu-sampler", daemon=True)
        self._wanted = False
        self._stopping = False
        self._answered_at = time.monotonic()
        self._samples: list[GpuSample] = []
        self._last_failure = ""

    def start(self) -> None:
        self._answered_at = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)

    def read(self) -> list[GpuSample]:
        """Return a new reading, or after a quarter of an interval the one before, or that the driver is silent."""
        with self._condition:
            self._wanted = True
            self._condition.notify_all()
            self._condition.wait_for(lambda: not self._wanted, self._patience_s)
            silent_s = time.monotonic() - self._answered_at
            if silent_s <= self._stale_s:
                return self._samples
            error = f"the driver has not answered for {silent_s:.0f} s"
            return [GpuSample(sample.index, error=error) for sample in self._samples]

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._wanted or self._stopping)
                if self._stopping:
                    return
            try:
                samples = self._nvml.sample()
            except Exception as error:  # noqa: BLE001 - top of a worker: the GPUs then show as not answering
                if repr(error) != self._last_failure:
                    self._last_failure = repr(error)
                    _log.error("reading the GPUs failed and goes on", exc_info=error)
                samples = None
            with self._condition:
                self._wanted = False
                if samples is not None:
                    self._samples, self._answered_at = samples, time.monotonic()
                self._condition.notify_all()
